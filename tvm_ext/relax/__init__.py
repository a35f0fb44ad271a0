"""tvm_ext inside TVM: pipelines for `tvm.compile`, and operators placed on several back ends."""
