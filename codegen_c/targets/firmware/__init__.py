"""Files of firmware that all start-up code shares: reports and files by semihosting, and counted instructions."""
