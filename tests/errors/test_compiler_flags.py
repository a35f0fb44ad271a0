"""Flags in platform files: those that vendors need pass, those that run, load or reach anything else say why not."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.errors.test_platform_errors import platform_file
from tvm_ext.core.compiler_flags import flag_problem
from tvm_ext.core.errors import BadOptions, BadPlatform, BuildFailed, MissingTool
from tvm_ext.core.platform import HOST_TOOLCHAIN, Platform, Toolchain
from tvm_ext.core.toolchain import compile_objects, find_program, link_elf

ALLOWED = (
    "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16 -march=rv32imac_zicsr -mabi=ilp32 -O2 -Os -g -gdwarf-4 "
    "-ffunction-sections -fno-math-errno -fshort-enums -falign-functions=32 -fvisibility=hidden -fuse-ld=lld -fno-lto "
    "-ffp-contract=off -Wno-psabi -DSTM32F407xx -DHSE_VALUE=8000000 -DFREQUENCY=SLOW -D__FPU_PRESENT=1 "
    "-specs=nano.specs --specs=picolibc.specs "
    "--target=arm-none-eabi --sysroot=vendor/sysroot"
).split()


@pytest.mark.parametrize("flag", [*ALLOWED, "-isystem vendor/CMSIS/Include"])
def test_flags_of_vendors_pass(flag: str) -> None:
    assert flag_problem(flag) is None


REFUSED = {
    "loads code into the compiler or linker": (
        "-fplugin=evil", "-fplugin-arg-evil-x", "-fpass-plugin=evil.so", "-Xclang", "-mllvm", "-load=evil.so", "-flto",
    ),
    "changes which programs the compiler runs": (
        "-B.", "-B/tmp", "-wrapper", "--gcc-toolchain=vendor", "-fuse-ld=/tmp/ld", "--ld-path=ld", "-fno-integrated-as",
        "--prefix=x",
    ),
    "only those that lie with the compiler": (
        "-specs=/tmp/evil.specs", "-specs=../evil.specs", "--specs=vendor/evil.specs", "-specs=evil",
    ),
    "reads options from a file": ("@flags", "@/etc/passwd"),
    "passes arguments to another program": ("-Wl,-T,evil.ld", "-Wa,--defsym", "-Wp,-MD,x", "-Xlinker"),
    "has to lie inside the project": (
        "-isystem /usr/include", "-isystem ../other", "-isystem a/../../b", "--sysroot=/", "--sysroot=a/..",
    ),
    "letters, digits": ("-isystem a b", "-isystem ", "-isystem $(HOME)", "--sysroot=a//b", "--sysroot=`x`"),
    "its folder belongs to it": ("-isystem",),
    "write -isystem FOLDER": (
        "-Ivendor", "-include", "-include evil.h", "-iquotex", "-L.", "-lm", "-Tx.ld", "-save-temps",
    ),
    "may change results": ("-ffast-math", "-ffp-contract=fast", "-Ofast", "-fno-signed-zeros"),
    "may give another meaning to functions": (
        "-Dmemcpy=system", "-Dmemcpy=_system", "-DX=system", "-DX=_system", "-D__asm__=x", "-D_Static_assert", "-Dint",
        "-D__builtin_memcpy=_system", "-D_STDINT_H", "-D__BEGIN=_system",
    ),
    "reads or writes files": (
        "-fprofile-generate", "-fdump-tree-all", "-fsanitize=address", "-ftest-coverage",
        "-fcs-profile-generate", "-fcreate-profile", "-fmemory-profile", "-mfentry-name=x", "-minstrument-return=call",
    ),
    "end a build": ("-Werror", "-Wno-error"),
    "is not an allowed flag": (
        "-mcpu=x; rm -rf /", "-DX=`id`", "-DX(y)=1", "", "vendor.c", "-fx=y", "-m", "-O2\n-Bx",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "flag"), [(reason, flag) for reason, flags in REFUSED.items() for flag in flags])
def test_a_refusal_says_why_and_what_is_allowed(reason: str, flag: str) -> None:
    problem = flag_problem(flag)
    assert problem is not None and reason in problem
    assert "allowed are -m..., --target=..." in problem


def test_a_platform_file_names_the_flag(tmp_path: Path) -> None:
    path = platform_file(tmp_path, "flags = []", 'flags = ["-O2", "-specs=/tmp/evil.specs"]')
    with pytest.raises(
        BadPlatform, match=r"toolchain\.flags\[1\] = '-specs=/tmp/evil\.specs': specs say which programs"
    ):
        Platform.load(path)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('flags = ["--target=arm-none-eabi"]', r"toolchain\.flags: --target=arm-none-eabi: is for another processor"),
        ('flags = ["-isystem inc"]', r"toolchain\.flags: -isystem inc: .* not compiled into code that runs here"),
        ('speed_flags = ["--sysroot=s"]', r"toolchain\.speed_flags: --sysroot=s: is for another"),
        ('prefix = "x-"\nflags = ["--target=x"]', r'GCC has one target, .*say compiler = "clang"'),
        ('prefix = "x-"\ncompiler = "clang"', r"toolchain\.compiler = 'clang': .*flags need --target="),
        ('prefix = "x-"\ncompiler = "../clang"', r"toolchain\.compiler = '\.\./clang'"),
        ('project = "/"', r"toolchain\.project: unknown key"),
    ],
)
def test_toolchains_that_contradict_themselves(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(BadPlatform, match=message):
        Platform.load(platform_file(tmp_path, "flags = []", lines))


needs_arm = pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is needed")


def arm(*flags: str, compiler: str = "") -> Toolchain:
    toolchain = Platform.load("cortex_m4").toolchain
    target = ("--target=arm-none-eabi",) if compiler else ()
    return replace(toolchain, compiler=compiler, flags=(*target, *toolchain.flags, *flags))


def source_in(folder: Path) -> Path:
    (folder / "src").mkdir(exist_ok=True)
    source = folder / "src" / "uses.c"
    source.write_text('#include "vendor.h"\nint32_t answer(void);\nint32_t answer(void) { return VENDOR; }\n')
    return source


@needs_arm
@pytest.mark.parametrize("compiler", ["", "clang"])
@pytest.mark.parametrize("flag", ["-isystem inc", "--sysroot=inc"])
def test_folders_beside_a_platform_are_for_build_files_alone(
    tmp_path: Path, flag: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever we are, or the source lies: what is compiled here would be run here."""
    if shutil.which(compiler or "sh") is None:
        pytest.skip(f"{compiler} is not on PATH")
    for folder in (tmp_path, tmp_path / "src"):
        for name in ("inc", "inc/include", "inc/usr/include"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "vendor.h").write_text("#include <stdint.h>\n#define VENDOR 42\n")
    monkeypatch.chdir(tmp_path)
    source = source_in(tmp_path)
    with pytest.raises(BuildFailed, match=r"vendor\.h"):
        compile_objects([source], tmp_path / "out", arm(flag, compiler=compiler))


@needs_arm
@pytest.mark.parametrize("compiler", ["", "clang"])
def test_a_sysroot_is_the_users_own_word(tmp_path: Path, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(compiler or "sh") is None:
        pytest.skip(f"{compiler} is not on PATH")
    seen = tmp_path / "seen"
    real = shutil.which(compiler or "arm-none-eabi-gcc")
    (tmp_path / (compiler or "arm-none-eabi-gcc")).write_text(f'#!/bin/sh\necho "$@" >> {seen}\nexec {real} "$@"\n')
    (tmp_path / (compiler or "arm-none-eabi-gcc")).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    source = source_in(tmp_path)
    source.write_text("extern int x;\nint x;\n")
    monkeypatch.setenv("TVM_EXT_SYSROOT", str(tmp_path / "src"))
    compile_objects([source], tmp_path / "out", arm(compiler=compiler))
    assert f"--sysroot={tmp_path / 'src'}" in seen.read_text()
    seen.unlink()
    compile_objects([source], tmp_path / "out", HOST_TOOLCHAIN)
    assert not seen.exists(), "this machine's compiler is not meant"
    for folder in ("src", str(tmp_path / "nothing")):
        monkeypatch.setenv("TVM_EXT_SYSROOT", folder)
        with pytest.raises(BadOptions, match=r"TVM_EXT_SYSROOT = .*: is no folder by an absolute path"):
            compile_objects([source], tmp_path / "out", arm(compiler=compiler))


def test_programs_of_the_working_folder_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH with an empty or a relative entry does not let a platform's prefix name a file that lies about."""
    (tmp_path / "here").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        (folder / "evil-gcc").write_text("#!/bin/sh\ntouch ran\n")
        (folder / "evil-gcc").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ":.:here:/usr/bin")
    with pytest.raises(MissingTool, match="evil-gcc is not on PATH"):
        find_program("evil-gcc")
    assert find_program("./evil-gcc") == "./evil-gcc", "as CC may name it, which is the user's"


@needs_arm
@pytest.mark.parametrize("place", ["src", "src/lib", "sysroot/lib", "sysroot/usr/lib"])
def test_specs_that_are_not_the_compilers_run_nothing(tmp_path: Path, place: str) -> None:
    """Specs may name any program as the compiler; GCC itself takes them from its folder, and from a sysroot."""
    source, ran = source_in(tmp_path), tmp_path / "ran"
    source.write_text("int x;\n")
    for folder in ("sysroot/lib", place):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / place / "evil.specs").write_text(f".c:\n@c\n\n@c:\n/usr/bin/touch {ran}\n")
    toolchain = arm("--sysroot=sysroot", "-specs=evil.specs")
    with pytest.raises(BuildFailed, match=r"-specs=evil\.specs: arm-none-eabi-gcc has no specs of that name"):
        compile_objects([source], tmp_path / "out", toolchain)
    with pytest.raises(BuildFailed, match=r"-specs=evil\.specs"):
        link_elf([source], tmp_path / "x.elf", toolchain, script=source)
    assert not ran.exists()


@needs_arm
def test_specs_of_the_compilers_own_are_taken(tmp_path: Path) -> None:
    source = source_in(tmp_path)
    source.write_text("extern int x;\nint x;\n")
    assert compile_objects([source], tmp_path / "out", arm("-specs=nano.specs"))[0].is_file()


def test_clang_without_a_c_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GCC of the prefix is asked for its headers; one without any names the way out."""
    for name, text in (("x-gcc", "#!/bin/sh\n"), ("clang", "#!/bin/sh\nexit 1\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    toolchain = Toolchain(prefix="x-", compiler="clang", flags=("--target=arm-none-eabi",))
    with pytest.raises(BuildFailed, match=r"x-gcc has no string\.h: .*name its specs"):
        compile_objects([source_in(tmp_path)], tmp_path / "out", toolchain)
