"""The driver: carries planned searches through their stages."""
