"""The default posterior, `auto`: what predicts well from few labels, chosen from the labels themselves.

It stands above the families and uses two of them, `function_space` for numbers and `ensembles` for networks. From
outside use the class, through the registry. `kernel_softmax` is the regression of classes on kernels, `folds` how rows
are held out, weighed and stacked.
"""
