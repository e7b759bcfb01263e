"""What is wrong: one model of the error, named by families of features.

``bags`` says where each member stands in its bag, ``families`` makes features of that,
``x_terms`` what they may depend on. ``score_test`` tests each family, ``logit`` fits
the tilt and measures its gain, ``naming`` decides what is named, ``sizes`` measures how
large it is, and ``findings`` puts it together. Tensors and a generator in, numbers out.
"""
