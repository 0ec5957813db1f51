"""The names of models in options and in files."""

RIDGE = "ridge"
GP = "gp"
LOGISTIC = "logistic"
SVM = "svm"
IVM = "ivm"
RVM = "rvm"
