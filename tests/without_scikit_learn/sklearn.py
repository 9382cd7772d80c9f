"""In the path of the processes that tests start: `import keras` imports scikit-learn if it can."""

raise ImportError("the processes that tests start have no scikit-learn, which takes a second each")
