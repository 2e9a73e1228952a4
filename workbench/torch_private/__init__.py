"""Every private name of torch that is used, each in one place."""
