"""The lectures' exercises: a page and a stub for each, and the laws that grade what a student wrote.

pages/, stubs                                 the equation, what is graded, hints, and the file to begin with
assignment, paths                             what a law is; the problem on which methods are tried
averaging, gossiping, compression, splitting  the laws of each exercise, and the catalogue's answer
grade                                         a student's file judged
"""
