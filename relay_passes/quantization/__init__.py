"""A float module and samples -> the module in QDQ form."""
