"""What forecasts rest on: the optimizer's settings and schedule, and looks at a plateau."""
