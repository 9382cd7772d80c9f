"""`kdist check` and `kdist.explain`: what of a step is divided, and is the model the same?"""
