"""SM clock and power of a GPU through NVML, the driver's own library; no Python package is needed."""

import ctypes
import statistics

SM_CLOCK = 1  # NVML_CLOCK_SM of nvml.h
POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t; its value as the unsigned integer that a power is (type 1)."""

    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp_us", ctypes.c_longlong),
                ("latency_us", ctypes.c_longlong), ("type", ctypes.c_int), ("error", ctypes.c_int),
                ("number", ctypes.c_uint), ("unused", ctypes.c_uint)]


def load():
    """NVML, or None where there is none or it does not start."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None


class Sensors:
    """One GPU's; without NVML every reading is None. `uuid` as CUDA gives it, with or without "GPU-" before it."""

    def __init__(self, library, uuid=None):
        self.library, self.device = library, ctypes.c_void_p()
        if library is None:
            return
        found = 1
        if uuid:
            name = f"GPU-{str(uuid).removeprefix('GPU-')}"
            found = library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.device))
        if found != 0:
            found = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(self.device))
        if found != 0:
            self.library = None

    def read(self):
        """(SM clock in MHz, power in W), each None if the driver does not tell."""
        if self.library is None:
            return None, None
        clock, milliwatts, now = ctypes.c_uint(), ctypes.c_uint(), FieldValue(id=POWER_INSTANT)
        has_clock = self.library.nvmlDeviceGetClockInfo(self.device, SM_CLOCK, ctypes.byref(clock)) == 0
        # As the programs do: the power now, or where only that is known the mean of the last second.
        fields = getattr(self.library, "nvmlDeviceGetFieldValues", None)
        if fields and fields(self.device, 1, ctypes.byref(now)) == 0 and (now.error, now.type) == (0, 1):
            return clock.value if has_clock else None, now.number / 1000
        has_power = self.library.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(milliwatts)) == 0
        return clock.value if has_clock else None, milliwatts.value / 1000 if has_power else None


def medians(readings):
    """(MHz, W): the median of each over the readings that have it, or None."""
    columns = ([reading[i] for reading in readings if reading[i] is not None] for i in range(2))
    return tuple(statistics.median(column) if column else None for column in columns)
