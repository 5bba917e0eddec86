"""The addons that divide models into pipeline stages."""
