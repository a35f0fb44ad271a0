"""Give functions of back ends with memories of their own their tensors there, by copies that are bindings.

Rewrite, after TVM's own fusion:
    main: b = net_gpu(x); y = region(b)      net_gpu(x): a = call_tir(f, x, w)
      ->  main: x.gpu = to_vdevice(x); b.gpu = net_gpu(x.gpu); b = to_vdevice(b.gpu); y = region(b)
          net_gpu(x): w.gpu = to_vdevice(w); a = call_tir(f_gpu, x, w.gpu), computed on the device
    f_gpu is compiled for the device's target, with TVM's default schedules where that is a GPU.
Leaves alone: all other functions. A module without functions for devices gets no devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax, tirx
from tvm.relax.global_info import VDevice
from tvm.s_tir import dlight

from relay_passes.composites import added
from relay_passes.dataflow import bindings, build, infer, is_dataflow, op_name, outputs, rebuild, substitute
from tvm_ext.core.decisions.composites import OperatorProcessor
from tvm_ext.core.names import unique

_CALLS = ("relax.call_tir", "relax.call_dps_packed")
_GPU_SCHEDULES = (
    dlight.gpu.Matmul, dlight.gpu.GEMV, dlight.gpu.Reduction, dlight.gpu.GeneralReduction, dlight.gpu.Fallback,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class BackendDevice:
    """Device of a processor: the target of its code, and its number among devices of the same kind."""

    processor: str
    target: tvm.target.Target
    number: int


@tvm.transform.module_pass(opt_level=0, name="MoveToDevices")
class MoveToDevices:
    """Move the tensors of functions for devices to these devices.

    host: target of all other code.
    devices: in the machine's order.
    """

    def __init__(self, host: tvm.target.Target, devices: Sequence[BackendDevice]) -> None:
        self.host, self.devices = host, devices

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        on = {device.processor: device for device in self.devices}
        moved = {
            var: on[processor]
            for var, func in mod.functions_items()
            if isinstance(func, relax.Function) and (processor := OperatorProcessor.read(func).processor) in on
        }
        if not moved or not is_dataflow(mod["main"]):
            return mod
        module = mod.clone()
        host = VDevice(self.host, 0)
        places = {device.processor: VDevice(device.target, device.number) for device in self.devices}
        module.update_global_info("vdevice", [host, *places.values()])
        calls: dict[tvm.ir.GlobalVar, tuple[tvm.ir.GlobalVar, VDevice]] = {}
        for var, device in sorted(moved.items(), key=lambda pair: pair[0].name_hint):
            place = places[device.processor]
            function = _on_device(module, mod[var], place, device)
            del module[var]
            calls[var] = added(module, var.name_hint, function), place
        main = _with_copies(mod["main"], calls, host)
        module.update_func(module.get_global_var("main"), main)
        return module


def _on_device(module: tvm.IRModule, function: relax.Function, place: VDevice, device: BackendDevice) -> relax.Function:
    """Return the function with all its tensors on the device, and with its callees compiled for the device."""
    params = [relax.Var(param.name, _placed(param.ty, place)) for param in function.params]
    known: dict[relax.Var, relax.Expr] = dict(zip(function.params, params, strict=True))
    sequence: list[relax.VarBinding] = []
    constants: dict[relax.Expr, relax.Var] = {}
    kernels: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}

    def bind(name: str, value: relax.Expr) -> relax.Var:
        sequence.append(relax.VarBinding(relax.DataflowVar(name, value.ty), value))
        return sequence[-1].var

    def moved(leaf: relax.Expr) -> relax.Expr:
        if isinstance(leaf, relax.Tuple):
            return relax.Tuple([moved(field) for field in leaf.fields])
        if not isinstance(leaf, tvm.ir.GenericConst):
            return substitute(leaf, known)
        if leaf not in constants:
            constants[leaf] = bind(f"constant_{len(constants)}", infer(relax.op.to_vdevice(leaf, place)))
        return constants[leaf]

    for binding in bindings(function):
        value = binding.value
        if op_name(value) in _CALLS:
            callee = value.args[0]
            if isinstance(callee, tvm.ir.GlobalVar):
                if callee not in kernels:
                    kernels[callee] = _kernel(module, callee, device)
                callee = kernels[callee]
            args = [callee, moved(value.args[1]), *value.args[2:]]
            result = _placed(value.ty, place)
            value = relax.Call(value.op, args, value.attrs, [result], value.span, result)
        elif isinstance(value, relax.Call):
            value = infer(relax.Call(value.op, [moved(arg) for arg in value.args], value.attrs, value.ty_args))
        else:
            value = moved(value)
        known[binding.var] = bind(binding.var.name, value)
    results = [moved(result) for result in outputs(function)]
    is_tuple = isinstance(function.body.body, relax.Tuple)
    return build(params, sequence, results, attrs=function.attrs, as_tuple=is_tuple)


def _kernel(module: tvm.IRModule, var: tvm.ir.GlobalVar, device: BackendDevice) -> tvm.ir.GlobalVar:
    """Compile a copy of a PrimFunc for the device."""
    stages = [tirx.transform.BindTarget(device.target)]
    if "gpu" in list(device.target.keys):
        stages.append(dlight.ApplyDefaultSchedule(*(schedule() for schedule in _GPU_SCHEDULES)))
    with device.target:
        function = tvm.transform.Sequential(stages)(tvm.IRModule({"kernel": module[var]}))["kernel"]
    taken = {one.name_hint for one in module.get_global_vars()}
    return added(module, unique(f"{var.name_hint}_{device.processor}", taken), function)


def _with_copies(
    main: relax.Function, calls: Mapping[tvm.ir.GlobalVar, tuple[tvm.ir.GlobalVar, VDevice]], host: VDevice
) -> relax.Function:
    """Return main with copies to and from devices around the calls of functions for devices."""
    sequence: list[relax.VarBinding] = []
    there: dict[tuple[relax.Expr, str], relax.Var] = {}
    tuples: dict[relax.Var, relax.Var] = {}
    """Tuples of results that lie on a device."""

    def bind(var: relax.Var, value: relax.Expr) -> relax.Var:
        """Bind a value that lies on a device, under the name of main's variable with a suffix."""
        sequence.append(relax.VarBinding(relax.DataflowVar(f"{var.name}.there", value.ty), value))
        return sequence[-1].var

    def back(var: relax.Var, value: relax.Var) -> None:
        sequence.append(relax.VarBinding(var, infer(relax.op.to_vdevice(value, host))))

    for binding in bindings(main):
        var, value = binding.var, binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in tuples:
            back(var, bind(var, _normal(relax.TupleGetItem(tuples[value.tuple_value], value.index))))
        elif isinstance(value, relax.Call) and value.op in calls:
            callee, place = calls[value.op]
            for arg in value.args:
                if (arg, str(place)) not in there:
                    there[arg, str(place)] = bind(arg, infer(relax.op.to_vdevice(arg, place)))
            result = bind(var, _normal(relax.Call(callee, [there[arg, str(place)] for arg in value.args])))
            if isinstance(result.ty, relax.TupleType):
                tuples[var] = result
            else:
                back(var, result)
        else:
            sequence.append(binding)
    return rebuild(main, sequence)


def _normal(value: relax.Expr) -> relax.Expr:
    return relax.BlockBuilder().normalize(value)


def _placed(kind: tvm.ir.Type, place: VDevice) -> tvm.ir.Type:
    """Return the type of the same tensor or tensors on a device."""
    if isinstance(kind, relax.TupleType):
        return relax.TupleType([_placed(field, place) for field in kind.fields])
    if not isinstance(kind, relax.TensorType):
        return kind
    return relax.TensorType(kind.shape, kind.dtype, place)
