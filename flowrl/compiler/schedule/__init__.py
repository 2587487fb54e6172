"""What every rank does in order, and proofs that no two wait for each other and buffers end."""

from flowrl.compiler.schedule.events import Event
from flowrl.compiler.schedule.in_flight import Backlog, Limits, backlogs
from flowrl.compiler.schedule.order import Meeting, check_order, deadlock
from flowrl.compiler.schedule.schedule import Order, Schedule, schedule, schedule_of

__all__ = [
    "Backlog",
    "Event",
    "Limits",
    "Meeting",
    "Order",
    "Schedule",
    "backlogs",
    "check_order",
    "deadlock",
    "schedule",
    "schedule_of",
]
