"""Engines, one a file or a room; `known_engines` names them, nothing else imports one."""
