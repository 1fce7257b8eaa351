"""Labels: events that are never changed, only followed by newer ones; what they set off goes down from here to rounds,
schedules and trainings.
"""
