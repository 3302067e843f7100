"""Pictures of what was found, made from the records alone: the report's, the live page's and MLflow's are the same."""
