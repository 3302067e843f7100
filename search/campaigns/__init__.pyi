from .prepare import read_campaign_plans as read_campaign_plans
from .report import campaign_report as campaign_report, stored_result as stored_result, write_report as write_report
from .result import (
    campaign_family as campaign_family,
    campaign_result as campaign_result,
    record_campaign as record_campaign,
    stored_campaign as stored_campaign,
    verify_campaign as verify_campaign,
)
from .tables import (
    CampaignResult as CampaignResult,
    campaign_csv as campaign_csv,
    campaign_tables as campaign_tables,
)
