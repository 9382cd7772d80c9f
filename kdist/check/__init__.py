"""`kdist check`: is a user's model the same on several replicas, and if not, why?"""
