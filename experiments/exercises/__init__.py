"""The lectures' exercises: a page and a stub for each, and the laws that grade what a student wrote.

pages/                                   the equation, what to write, what is graded, hints, the stub
stubs                                    the pages read, and the files that students begin with
question                                 what a law and a misreading are
averaging, compression, splitting        the laws of each exercise: right is what the catalogue gives
grade                                    a student's file judged
"""
