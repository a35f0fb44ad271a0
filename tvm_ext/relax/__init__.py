"""tvm_ext inside TVM: pipelines for `tvm.compile`, and placement of operators on several back ends."""
