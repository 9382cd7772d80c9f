"""`kdist doctor`: is this machine ready for training, and what is to be fixed?"""
