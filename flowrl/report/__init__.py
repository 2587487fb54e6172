"""What people see of a program: checks, graphs as text and pictures, reference pages."""
