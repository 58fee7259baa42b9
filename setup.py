"""The build step: compiles the runtime and the shipped programs. Everything else is in pyproject.toml.

KINEMA_MARCH         instruction set to compile for: native (the default in place), or a level such as x86-64-v3 (the
                     default for wheels on x86-64)
KINEMA_SKIP_NATIVE   1: install the Python files only; `python setup.py build_native --inplace` does the rest
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

ROOT = Path(__file__).resolve().parent
PORTABLE = {"x86_64": "x86-64-v3", "AMD64": "x86-64-v3", "aarch64": "armv8-a", "arm64": "armv8-a"}


class build_native(Command):
    """Compile the native code, into src/ for an editable install, otherwise into the folder of the wheel."""

    description = "compile the runtime and the shipped programs"
    user_options = [("inplace", "i", "compile into src/kinema/_native, for this machine")]
    boolean_options = ["inplace"]
    editable_mode = False  # set by setuptools

    def initialize_options(self):
        self.inplace = False
        self.build_lib = None

    def finalize_options(self):
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self):
        if os.environ.get("KINEMA_SKIP_NATIVE") == "1":
            return
        inplace = self.inplace or self.editable_mode
        os.environ.setdefault("KINEMA_MARCH", "native" if inplace else PORTABLE.get(platform.machine(), "native"))
        target = (ROOT / "src" if inplace else Path(self.build_lib).resolve()) / "kinema" / "_native"
        # Only src/, the standard library and numpy are available here: neither torch nor the installed package.
        sys.path.insert(0, str(ROOT / "src"))
        try:
            from kinema.errors import KinemaError
            from kinema.shipped import build_all
        except ImportError as error:
            raise SystemExit(f"kinema: the generator of the native code does not import: {error}") from error
        if not inplace:
            shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True, exist_ok=True)
        try:
            build_all(target)
        except KinemaError as error:
            raise SystemExit(f"kinema: {error}") from error

    def get_source_files(self):
        return []

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class build_with_native(build):
    """The usual build, then the native code."""

    sub_commands = [*build.sub_commands, ("build_native", None)]


class platform_wheel(bdist_wheel):
    """Tag wheels by platform but not by Python version: ctypes loads the libraries."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


class NativeDistribution(Distribution):
    """A distribution with native code, so that wheels are not tagged `any`."""

    def has_ext_modules(self):
        return True


setup(
    distclass=NativeDistribution,
    cmdclass={"build": build_with_native, "build_native": build_native, "bdist_wheel": platform_wheel},
)
