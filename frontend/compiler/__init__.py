"""The driver that joins the rooms, and the tools to look inside: stats, explain, dump, check_mode.

Start in driver.py (from a sealed trace to a Step that runs), then build.py (passes, codegen, program).
"""
