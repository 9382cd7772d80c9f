"""`kdist check` and `kdist.explain`: the division of a step, and equality of training runs."""
