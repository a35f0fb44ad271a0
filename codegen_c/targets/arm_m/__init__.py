"""Start-up code of Arm's M-profile, which several targets share."""
