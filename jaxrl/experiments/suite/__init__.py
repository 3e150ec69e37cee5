"""`jaxrl bench --suite`: all measurements of a machine."""
