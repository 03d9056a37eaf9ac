// CUDA's runtime for a small host program (CUDA Runtime API): memory, launches, errors. Memory of
// the device is the emulator's: an access past its end and a read of what nothing has written are
// found. Everything happens at once, so streams and events have nothing to order.
//
// What cannot be done prints one sentence and is an error code, as in CUDA. What a kernel does
// wrong ends the program, with the emulator's report and exit code 1.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/emulator/core/lane.h"
#include "common/emulator/core/memory.h"
#include "common/emulator/core/vector_types.h"
#include "common/emulator/units/shared_variables.h"

// A version of CUDA's that has all that is here; NVIDIA's helper headers ask for the others.
#define CUDART_VERSION 12080
#define CUDA_VERSION CUDART_VERSION
#define CUDART_CB
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__

// Name, value and text of each error.
#define FA_CUDA_ERRORS                                                                           \
  FA_ERROR(cudaSuccess, 0, "no error")                                                           \
  FA_ERROR(cudaErrorInvalidValue, 1, "invalid argument")                                         \
  FA_ERROR(cudaErrorMemoryAllocation, 2, "out of memory")                                        \
  FA_ERROR(cudaErrorInitializationError, 3, "initialization error")                              \
  FA_ERROR(cudaErrorCudartUnloading, 4, "driver shutting down")                                  \
  FA_ERROR(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                   \
  FA_ERROR(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                             \
  FA_ERROR(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                  \
  FA_ERROR(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                          \
  FA_ERROR(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")             \
  FA_ERROR(cudaErrorInsufficientDriver, 35,                                                      \
           "CUDA driver version is insufficient for CUDA runtime version")                       \
  FA_ERROR(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable") \
  FA_ERROR(cudaErrorMissingConfiguration, 52, "__global__ function call is not configured")      \
  FA_ERROR(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                        \
  FA_ERROR(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                         \
  FA_ERROR(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                \
  FA_ERROR(cudaErrorNoKernelImageForDevice, 209,                                                 \
           "no kernel image is available for execution on the device")                           \
  FA_ERROR(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                \
  FA_ERROR(cudaErrorPeerAccessUnsupported, 217,                                                  \
           "peer access is not supported between these two devices")                             \
  FA_ERROR(cudaErrorInvalidPtx, 218, "a PTX JIT compilation failed")                             \
  FA_ERROR(cudaErrorUnsupportedPtxVersion, 222,                                                  \
           "the provided PTX was compiled with an unsupported toolchain.")                       \
  FA_ERROR(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                       \
  FA_ERROR(cudaErrorIllegalState, 401, "the operation cannot be performed in the present state") \
  FA_ERROR(cudaErrorNotReady, 600, "device not ready")                                           \
  FA_ERROR(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")             \
  FA_ERROR(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")        \
  FA_ERROR(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")               \
  FA_ERROR(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")             \
  FA_ERROR(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")               \
  FA_ERROR(cudaErrorAssert, 710, "device-side assert triggered")                                 \
  FA_ERROR(cudaErrorHostMemoryAlreadyRegistered, 712,                                            \
           "part or all of the requested memory range is already mapped")                        \
  FA_ERROR(cudaErrorHostMemoryNotRegistered, 713,                                                \
           "pointer does not correspond to a registered memory region")                          \
  FA_ERROR(cudaErrorHardwareStackError, 714, "hardware stack error")                             \
  FA_ERROR(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")           \
  FA_ERROR(cudaErrorMisalignedAddress, 716, "misaligned address")                                \
  FA_ERROR(cudaErrorInvalidAddressSpace, 717,                                                    \
           "operation not supported on global/shared address space")                             \
  FA_ERROR(cudaErrorInvalidPc, 718, "invalid program counter")                                   \
  FA_ERROR(cudaErrorLaunchFailure, 719, "unspecified launch failure")                            \
  FA_ERROR(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")     \
  FA_ERROR(cudaErrorNotSupported, 801, "operation not supported")                                \
  FA_ERROR(cudaErrorSystemDriverMismatch, 803,                                                   \
           "system has unsupported display driver / cuda driver combination")                    \
  FA_ERROR(cudaErrorStreamCaptureUnsupported, 900,                                               \
           "operation not permitted when stream is capturing")                                   \
  FA_ERROR(cudaErrorInvalidClusterSize, 912,                                                     \
           "a kernel launch error has occurred due to cluster misconfiguration")                 \
  FA_ERROR(cudaErrorUnknown, 999, "unknown error")
#define FA_ERROR(name, value, text) name = value,
enum cudaError { FA_CUDA_ERRORS };
#undef FA_ERROR
using cudaError_t = cudaError;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1 };
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100
};
enum cudaSharedMemConfig {
  cudaSharedMemBankSizeDefault,
  cudaSharedMemBankSizeFourByte,
  cudaSharedMemBankSizeEightByte
};
enum cudaComputeMode { cudaComputeModeDefault, cudaComputeModeProhibited = 2 };
enum cudaLimit {
  cudaLimitStackSize,
  cudaLimitPrintfFifoSize,
  cudaLimitMallocHeapSize,
  cudaLimitDevRuntimeSyncDepth,
  cudaLimitDevRuntimePendingLaunchCount,
  cudaLimitMaxL2FetchGranularity,
  cudaLimitPersistingL2CacheSize
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
enum cudaMemLocationType {
  cudaMemLocationTypeInvalid,
  cudaMemLocationTypeDevice,
  cudaMemLocationTypeHost,
  cudaMemLocationTypeHostNuma,
  cudaMemLocationTypeHostNumaCurrent
};
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy
};
// Name, value and member of cudaDeviceProp.
#define FA_DEVICE_ATTRIBUTES                                                                \
  FA_ATTRIBUTE(cudaDevAttrMaxThreadsPerBlock, 1, maxThreadsPerBlock)                        \
  FA_ATTRIBUTE(cudaDevAttrMaxBlockDimX, 2, maxThreadsDim[0])                                \
  FA_ATTRIBUTE(cudaDevAttrMaxBlockDimY, 3, maxThreadsDim[1])                                \
  FA_ATTRIBUTE(cudaDevAttrMaxBlockDimZ, 4, maxThreadsDim[2])                                \
  FA_ATTRIBUTE(cudaDevAttrMaxGridDimX, 5, maxGridSize[0])                                   \
  FA_ATTRIBUTE(cudaDevAttrMaxGridDimY, 6, maxGridSize[1])                                   \
  FA_ATTRIBUTE(cudaDevAttrMaxGridDimZ, 7, maxGridSize[2])                                   \
  FA_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerBlock, 8, sharedMemPerBlock)                    \
  FA_ATTRIBUTE(cudaDevAttrTotalConstantMemory, 9, totalConstMem)                            \
  FA_ATTRIBUTE(cudaDevAttrWarpSize, 10, warpSize)                                           \
  FA_ATTRIBUTE(cudaDevAttrMaxRegistersPerBlock, 12, regsPerBlock)                           \
  FA_ATTRIBUTE(cudaDevAttrClockRate, 13, clockRate)                                         \
  FA_ATTRIBUTE(cudaDevAttrGpuOverlap, 15, deviceOverlap)                                    \
  FA_ATTRIBUTE(cudaDevAttrMultiProcessorCount, 16, multiProcessorCount)                     \
  FA_ATTRIBUTE(cudaDevAttrIntegrated, 18, integrated)                                       \
  FA_ATTRIBUTE(cudaDevAttrCanMapHostMemory, 19, canMapHostMemory)                           \
  FA_ATTRIBUTE(cudaDevAttrComputeMode, 20, computeMode)                                     \
  FA_ATTRIBUTE(cudaDevAttrConcurrentKernels, 31, concurrentKernels)                         \
  FA_ATTRIBUTE(cudaDevAttrMemoryClockRate, 36, memoryClockRate)                             \
  FA_ATTRIBUTE(cudaDevAttrGlobalMemoryBusWidth, 37, memoryBusWidth)                         \
  FA_ATTRIBUTE(cudaDevAttrL2CacheSize, 38, l2CacheSize)                                     \
  FA_ATTRIBUTE(cudaDevAttrMaxThreadsPerMultiProcessor, 39, maxThreadsPerMultiProcessor)     \
  FA_ATTRIBUTE(cudaDevAttrAsyncEngineCount, 40, asyncEngineCount)                           \
  FA_ATTRIBUTE(cudaDevAttrUnifiedAddressing, 41, unifiedAddressing)                         \
  FA_ATTRIBUTE(cudaDevAttrComputeCapabilityMajor, 75, major)                                \
  FA_ATTRIBUTE(cudaDevAttrComputeCapabilityMinor, 76, minor)                                \
  FA_ATTRIBUTE(cudaDevAttrStreamPrioritiesSupported, 78, streamPrioritiesSupported)         \
  FA_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerMultiprocessor, 81, sharedMemPerMultiprocessor) \
  FA_ATTRIBUTE(cudaDevAttrMaxRegistersPerMultiprocessor, 82, regsPerMultiprocessor)         \
  FA_ATTRIBUTE(cudaDevAttrManagedMemory, 83, managedMemory)                                 \
  FA_ATTRIBUTE(cudaDevAttrPageableMemoryAccess, 88, pageableMemoryAccess)                   \
  FA_ATTRIBUTE(cudaDevAttrConcurrentManagedAccess, 89, concurrentManagedAccess)             \
  FA_ATTRIBUTE(cudaDevAttrCooperativeLaunch, 95, cooperativeLaunch)                         \
  FA_ATTRIBUTE(cudaDevAttrMaxSharedMemoryPerBlockOptin, 97, sharedMemPerBlockOptin)         \
  FA_ATTRIBUTE(cudaDevAttrMaxBlocksPerMultiprocessor, 106, maxBlocksPerMultiProcessor)      \
  FA_ATTRIBUTE(cudaDevAttrMemoryPoolsSupported, 115, memoryPoolsSupported)
#define FA_ATTRIBUTE(name, value, member) name = value,
enum cudaDeviceAttr { FA_DEVICE_ATTRIBUTES };
#undef FA_ATTRIBUTE
enum cudaDeviceP2PAttr {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported,
  cudaDevP2PAttrNativeAtomicSupported,
  cudaDevP2PAttrCudaArrayAccessSupported
};
// Hints about caches, which are taken and forgotten.
enum cudaAccessProperty {
  cudaAccessPropertyNormal,
  cudaAccessPropertyStreaming,
  cudaAccessPropertyPersisting
};
struct cudaAccessPolicyWindow {
  void* base_ptr;
  size_t num_bytes;
  float hitRatio;
  cudaAccessProperty hitProp, missProp;
};
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0,
                          cudaEventBlockingSync = 1, cudaEventDisableTiming = 2,
                          cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                          cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4,
                          cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1,
                          cudaHostRegisterMapped = 2, cudaMemAttachGlobal = 1,
                          cudaMemAttachHost = 2, cudaMemAttachSingle = 4,
                          cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1,
                          cudaDeviceScheduleYield = 2, cudaDeviceScheduleBlockingSync = 4,
                          cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8;
inline constexpr int cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2;
using cudaStream_t = struct CUstream_st*;
inline const cudaStream_t cudaStreamLegacy = nullptr, cudaStreamPerThread = nullptr;
using cudaEvent_t = struct CUevent_st*;
using cudaMemPool_t = struct CUmemPoolHandle_st*;
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic,
  cudaMemPoolReuseAllowInternalDependencies,
  cudaMemPoolAttrReleaseThreshold
};
enum cudaStreamAttrID {
  cudaStreamAttributeAccessPolicyWindow = 1,
  cudaStreamAttributeSynchronizationPolicy = 3,
  cudaStreamAttributePriority = 8
};
union cudaStreamAttrValue {
  cudaAccessPolicyWindow accessPolicyWindow;
  int priority;
};

struct CUuuid_st {
  char bytes[16];
};
using CUuuid = CUuuid_st;
using cudaUUID_t = CUuuid_st;

// The shape of an H100, but 3 SMs, so that a loop over a grid of all SMs has several turns.
struct cudaDeviceProp {
  char name[256] = "emulator";
  cudaUUID_t uuid = {};
  char luid[8] = {};  // of Windows
  unsigned luidDeviceNodeMask = 0;
  size_t totalGlobalMem = size_t(1) << 34;
  size_t sharedMemPerBlock = 48 * 1024, sharedMemPerBlockOptin = 227 * 1024;
  size_t sharedMemPerMultiprocessor = 228 * 1024, reservedSharedMemPerBlock = 1024;
  size_t totalConstMem = 64 * 1024;
  int regsPerBlock = 65536, regsPerMultiprocessor = 65536, warpSize = 32;
  int maxThreadsPerBlock = 1024, maxThreadsDim[3] = {1024, 1024, 64};
  int maxGridSize[3] = {2147483647, 65535, 65535};
  int maxThreadsPerMultiProcessor = 2048, maxBlocksPerMultiProcessor = 32;
  int multiProcessorCount = 3, major = 9, minor = 0;
  int l2CacheSize = 50 << 20, memoryBusWidth = 5120, concurrentKernels = 1, cooperativeLaunch = 1;
  int unifiedAddressing = 1, managedMemory = 1, integrated = 0, ECCEnabled = 0;
  int clockRate = 1980000, memoryClockRate = 2619000;  // in kHz
  int computeMode = cudaComputeModeDefault, canMapHostMemory = 1, deviceOverlap = 1;
  int asyncEngineCount = 3, streamPrioritiesSupported = 1, concurrentManagedAccess = 1;
  int pageableMemoryAccess = 0, kernelExecTimeoutEnabled = 0, globalL1CacheSupported = 1;
  int localL1CacheSupported = 1, isMultiGpuBoard = 0, tccDriver = 0, memoryPoolsSupported = 1;
  int pageableMemoryAccessUsesHostPageTables = 0, hostNativeAtomicSupported = 0;
  int directManagedMemAccessFromHost = 0, computePreemptionSupported = 1;
  int persistingL2CacheMaxSize = 30 << 20, accessPolicyMaxWindowSize = 128 << 20;
  int pciDomainID = 0, pciBusID = 0, pciDeviceID = 0;
  int hostRegisterSupported = 1, clusterLaunch = 1, cooperativeMultiDeviceLaunch = 0;
  int canUseHostPointerForRegisteredMem = 1, singleToDoublePrecisionPerfRatio = 2;
  int multiGpuBoardGroupID = 0, maxTexture1D = 131072, maxTexture2D[2] = {131072, 65536};
  int maxTexture3D[3] = {16384, 16384, 16384}, maxTexture1DLayered[2] = {32768, 2048};
  int maxTexture2DLayered[3] = {32768, 32768, 2048}, maxSurface1D = 32768;
  int maxSurface2D[2] = {131072, 65536}, maxSurface3D[3] = {16384, 16384, 16384};
  int maxSurface1DLayered[2] = {32768, 2048}, maxSurface2DLayered[3] = {32768, 32768, 2048};
  int maxSurfaceCubemap = 32768, maxSurfaceCubemapLayered[2] = {32768, 2046};
  size_t memPitch = 2147483647, textureAlignment = 512, texturePitchAlignment = 32;
  size_t surfaceAlignment = 512;
};

// ---- for what cuda_source.py writes -------------------------------------------------------------
namespace emu {

// While it exists, what this thread allocates is the emulator's and not the program's, and no other
// thread of the host is in the runtime.
struct OwnMemory {
  explicit OwnMemory(const void* frame);
  ~OwnMemory();
};
// The C library's, remembered as memory of the host.
void* host_malloc(size_t bytes);
void* host_calloc(size_t count, size_t bytes);
void* host_realloc(void* memory, size_t bytes);
void host_free(void* memory);

// kernel<<<grid, block, shared_bytes, stream>>>(arguments...)
class Launch {
 public:
  Launch(std::string kernel, dim3 grid, dim3 block, size_t shared_bytes = 0,
         cudaStream_t stream = nullptr, SourceLocation where = SourceLocation::current())
      : kernel_(std::move(kernel)),
        grid_(grid),
        block_(block),
        shared_bytes_(shared_bytes),
        where_(where) {
    (void)stream;
  }
  // How many CTAs a cluster has; `all`: the CTAs of the grid run together.
  Launch& cluster(dim3 ctas, bool all = false) {
    cluster_ = ctas;
    all_ = all;
    return *this;
  }
  template <typename Call, typename... Arguments>
  void operator()(Call call, Arguments... arguments) const {
    start(call, arguments...);
  }
  cudaError_t result() const { return result_; }

 private:
  // Its frame divides the stack: above are the caller's variables, which no kernel may touch but
  // through `call`, where that is more than the name of a kernel.
  template <typename Call, typename... Arguments>
  __attribute__((noinline)) void start(const Call& call, const Arguments&... arguments) const {
    const OwnMemory own(std::is_empty_v<Call> ? __builtin_frame_address(0) : nullptr);
    std::tuple<Arguments...> copies{arguments...};
    run([&copies, &call] { std::apply(call, copies); });
  }
  void run(const std::function<void()>& body) const;

  std::string kernel_;
  dim3 grid_, block_, cluster_;
  bool all_ = false;
  size_t shared_bytes_;
  SourceLocation where_;
  mutable cudaError_t result_ = cudaSuccess;
};

// An argument whose parameter is a reference.
template <typename T>
std::reference_wrapper<T> by_reference(T& argument) {
  return argument;
}
template <typename T>
std::reference_wrapper<const T> by_reference(const T&& argument) {
  static_assert(sizeof(T) == 0,
                "a kernel's parameter by reference takes memory that the GPU "
                "reaches, and a value that the host computes has none");
  return argument;
}

// NULL as an argument of a macro that launches a kernel.
inline constexpr struct {
  template <typename T>
  constexpr operator T*() const {
    return nullptr;
  }
  constexpr operator long() const { return 0; }
} null;

// The name of a kernel that is an argument of a template: attention<float, 64>.
template <auto kKernel>
std::string kernel_name() {
  std::string name = __PRETTY_FUNCTION__;  // "... kKernel = fa::attention<float, 64>; ...]"
  name.erase(0, name.find("kKernel = ") + 10);
  name.erase(name.find_first_of(";]"));
  const size_t qualifier = name.rfind("::", name.find('<'));
  return name.substr(qualifier != name.npos ? qualifier + 2 : name[0] == '&' ? 1 : 0);
}

// A __device__ or __constant__ variable.
struct DeviceVariable {
  DeviceVariable(const char* name, void* begin, size_t bytes, size_t red_zone, bool read_only) {
    watch_variable(name, begin, bytes, red_zone, read_only);
  }
};

// printf: of a kernel's threads in the order of the CTAs, when those before have ended.
int print(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Called after every launch; null: by nobody.
using AfterLaunch = void (*)(const char* kernel);
extern constinit AfterLaunch after_launch;

// All that was printed so far as an error.
std::vector<std::string>& reports();

// Whether a launch was refused of which the program has not asked by cudaGetLastError() or
// cudaPeekAtLastError().
bool has_unasked_refusal();

// From now on launches go on after reports of the checked build that allow it, which are printed.
void keep_going();
bool has_gone_on();
cudaError_t present_error();
// Says once, if what the host can read holds a NaN that a kernel made, where that was.
void note_nans_for_host();
// Notes and returns an error, whose sentence it prints.
cudaError_t report_error(cudaError_t code, const char* function, SourceLocation where,
                         const char* sentence);
void* allocate(size_t bytes, const char* function, SourceLocation where);
template <typename T>
cudaError_t allocate_at(T** memory, size_t bytes, const char* function, SourceLocation where) {
  *memory = static_cast<T*>(allocate(bytes, function, where));
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t release(void* memory, const char* function, SourceLocation where);
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                 const char* function, SourceLocation where);
cudaError_t fill(void* to, int value, size_t bytes, SourceLocation where);
cudaError_t register_host(void* memory, size_t bytes, SourceLocation where);
void allow_dynamic_shared(size_t bytes);
template <typename T>
cudaError_t give(T* to, const std::type_identity_t<T>& value) {
  *to = value;
  return cudaSuccess;
}
// An error for any other device than the one that is there.
inline cudaError_t check_device(int device, const char* function, SourceLocation where) {
  if (device == 0) return cudaSuccess;
  return report_error(cudaErrorInvalidDevice, function, where,
                      "the emulator is one device, number 0");
}
// An error with this sentence, unless the memory's name begins with one of `kinds`.
cudaError_t check_kind(const void* memory, std::initializer_list<const char*> kinds,
                       const char* function, SourceLocation where, const char* sentence);

}  // namespace emu

#define FA_WHERE emu::SourceLocation where = emu::SourceLocation::current()

// ---- errors -------------------------------------------------------------------------------------
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

// ---- memory -------------------------------------------------------------------------------------
template <typename T>
inline cudaError_t cudaMalloc(T** memory, size_t bytes, FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaMalloc", where);
}
template <typename T>
inline cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned = cudaMemAttachGlobal,
                                     FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaMallocManaged", where);
}
template <typename T>
inline cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t, FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaMallocAsync", where);
}
// Memory of the host that a kernel reaches, too.
template <typename T>
inline cudaError_t cudaMallocHost(T** memory, size_t bytes, FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaMallocHost", where);
}
template <typename T>
inline cudaError_t cudaHostAlloc(T** memory, size_t bytes, unsigned = cudaHostAllocDefault,
                                 FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaHostAlloc", where);
}
// The same of memory that the program has.
inline cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned, FA_WHERE) {
  return emu::register_host(memory, bytes, where);
}
cudaError_t cudaHostUnregister(void* memory);
// Such memory has one address for both sides.
template <typename T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned = 0, FA_WHERE) {
  *device = static_cast<T*>(host);
  return emu::check_kind(host, {"the cudaMallocHost", "the cudaHostAlloc", "the cudaHostRegister"},
                         "cudaHostGetDevicePointer", where,
                         "this is memory of neither cudaHostAlloc(), cudaMallocHost() nor "
                         "cudaHostRegister()");
}
// Rows of a multiple of 512 bytes, as on an H100.
template <typename T>
inline cudaError_t cudaMallocPitch(T** memory, size_t* pitch, size_t width, size_t height,
                                   FA_WHERE) {
  *pitch = (width + 511) / 512 * 512;
  return emu::allocate_at(memory, *pitch * height, "cudaMallocPitch", where);
}
inline cudaError_t cudaMemPrefetchAsync(const void* memory, size_t, int, cudaStream_t = nullptr,
                                        FA_WHERE) {
  return emu::check_kind(memory, {"the cudaMallocManaged", "__managed__"}, "cudaMemPrefetchAsync",
                         where, "this is not memory of cudaMallocManaged()");
}
inline cudaError_t cudaMemAdvise(const void* memory, size_t, cudaMemoryAdvise, int, FA_WHERE) {
  return emu::check_kind(memory, {"the cudaMallocManaged", "__managed__"}, "cudaMemAdvise", where,
                         "this is not memory of cudaMallocManaged()");
}
inline cudaError_t cudaMemPrefetchAsync(const void* memory, size_t bytes, cudaMemLocation, unsigned,
                                        cudaStream_t stream = nullptr, FA_WHERE) {
  return cudaMemPrefetchAsync(memory, bytes, 0, stream, where);
}
inline cudaError_t cudaMemAdvise(const void* memory, size_t bytes, cudaMemoryAdvise advice,
                                 cudaMemLocation, FA_WHERE) {
  return cudaMemAdvise(memory, bytes, advice, 0, where);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
inline cudaError_t cudaFreeHost(void* memory, FA_WHERE) {
  return emu::release(memory, "cudaFreeHost", where);
}
inline cudaError_t cudaFree(void* memory, FA_WHERE) {
  return emu::release(memory, "cudaFree", where);
}
inline cudaError_t cudaFreeAsync(void* memory, cudaStream_t, FA_WHERE) {
  return emu::release(memory, "cudaFreeAsync", where);
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                              FA_WHERE) {
  return emu::copy(to, from, bytes, kind, "cudaMemcpy", where);
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr, FA_WHERE) {
  return emu::copy(to, from, bytes, kind, "cudaMemcpyAsync", where);
}
inline cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                                  size_t bytes, FA_WHERE) {
  const auto error =
      emu::check_device(to_device ? to_device : from_device, "cudaMemcpyPeer", where);
  return error ? error : cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice, where);
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                       size_t bytes, cudaStream_t = nullptr, FA_WHERE) {
  return cudaMemcpyPeer(to, to_device, from, from_device, bytes, where);
}
inline cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                size_t width, size_t height, cudaMemcpyKind kind, FA_WHERE) {
  cudaError_t error = cudaSuccess;
  for (size_t row = 0; row < height && error == cudaSuccess; row++) {
    error = emu::copy(static_cast<char*>(to) + row * to_pitch,
                      static_cast<const char*>(from) + row * from_pitch, width, kind,
                      "cudaMemcpy2D", where);
  }
  return error;
}
inline cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                     size_t width, size_t height, cudaMemcpyKind kind,
                                     cudaStream_t = nullptr, FA_WHERE) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind, where);
}
inline cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height,
                                FA_WHERE) {
  cudaError_t error = cudaSuccess;
  for (size_t row = 0; row < height && error == cudaSuccess; row++) {
    error = emu::fill(static_cast<char*>(to) + row * pitch, value, width, where);
  }
  return error;
}
inline cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t = nullptr, FA_WHERE) {
  return cudaMemset2D(to, pitch, value, width, height, where);
}
inline cudaError_t cudaMemset(void* to, int value, size_t bytes, FA_WHERE) {
  return emu::fill(to, value, bytes, where);
}
inline cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t = nullptr,
                                   FA_WHERE) {
  return emu::fill(to, value, bytes, where);
}
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *free_bytes = *total = cudaDeviceProp().totalGlobalMem;
  return cudaSuccess;
}
template <typename T>
inline cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, size_t bytes,
                                      size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice,
                                      FA_WHERE) {
  char* const to = reinterpret_cast<char*>(const_cast<std::remove_const_t<T>*>(&symbol));
  return emu::copy(to + offset, from, bytes, cudaMemcpyHostToDevice, "cudaMemcpyToSymbol", where);
}
template <typename T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind = cudaMemcpyDeviceToHost, FA_WHERE) {
  return emu::copy(to, reinterpret_cast<const char*>(&symbol) + offset, bytes,
                   cudaMemcpyDeviceToHost, "cudaMemcpyFromSymbol", where);
}
template <typename T>
inline cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind,
                                           cudaStream_t = nullptr, FA_WHERE) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind, where);
}
template <typename T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind, cudaStream_t = nullptr,
                                             FA_WHERE) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind, where);
}
template <typename T>
inline cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
  return emu::give(bytes, sizeof(T));
}
template <typename T>
inline cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  return emu::give(address, const_cast<void*>(static_cast<const void*>(&symbol)));
}

// ---- the device ---------------------------------------------------------------------------------
inline cudaError_t cudaDeviceSynchronize() {
  emu::note_nans_for_host();
  return emu::present_error();
}
inline cudaError_t cudaDeviceReset() { return cudaSuccess; }
inline cudaError_t cudaThreadSynchronize() { return emu::present_error(); }  // up to CUDA 12
inline cudaError_t cudaThreadExit() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return emu::give(count, 1); }
inline cudaError_t cudaGetDevice(int* device) { return emu::give(device, 0); }
inline cudaError_t cudaSetDevice(int device, FA_WHERE) {
  return emu::check_device(device, "cudaSetDevice", where);
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  return emu::give(properties, {});
}
inline cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  return cudaGetDevice(device);
}
inline cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
inline cudaError_t cudaDeviceSetSharedMemConfig(cudaSharedMemConfig) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetSharedMemConfig(cudaSharedMemConfig* config) {
  return emu::give(config, cudaSharedMemBankSizeFourByte);
}
inline cudaError_t cudaRuntimeGetVersion(int* version) {
  return emu::give(version, CUDART_VERSION);
}
inline cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
inline cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int) {
  snprintf(text, size_t(length), "0000:00:00.0");
  return cudaSuccess;
}
inline cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
// Limits are remembered; no kernel reaches them here.
cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t value);
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);

// The one device has no peer (CUDA Runtime API, "Peer Device Memory Access"). The errors are those
// that an H100 alone gave.
inline cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer, FA_WHERE) {
  *can = 0;
  return emu::check_device(device ? device : peer, "cudaDeviceCanAccessPeer", where);
}
inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags, FA_WHERE) {
  const auto error = peer    ? cudaErrorInvalidDevice
                     : flags ? cudaErrorInvalidValue
                             : cudaErrorPeerAccessUnsupported;
  return emu::report_error(
      error, "cudaDeviceEnablePeerAccess", where,
      flags && !peer ? "its flags must be 0" : "the emulator is one device, which has no peer");
}
inline cudaError_t cudaDeviceDisablePeerAccess(int peer, FA_WHERE) {
  return emu::report_error(peer ? cudaErrorInvalidDevice : cudaErrorPeerAccessNotEnabled,
                           "cudaDeviceDisablePeerAccess", where,
                           "the emulator is one device, which has no peer");
}
inline cudaError_t cudaDeviceGetP2PAttribute(int*, cudaDeviceP2PAttr, int, int, FA_WHERE) {
  return emu::report_error(cudaErrorInvalidDevice, "cudaDeviceGetP2PAttribute", where,
                           "the emulator is one device, which has no peer");
}

// No profiler is there.
inline cudaError_t cudaProfilerStart() { return cudaSuccess; }
inline cudaError_t cudaProfilerStop() { return cudaSuccess; }

// ---- kernels ------------------------------------------------------------------------------------
template <typename Kernel>
inline cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute attribute, int value, FA_WHERE) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value > 227 * 1024) {
    return emu::report_error(cudaErrorInvalidValue, "cudaFuncSetAttribute", where,
                             "a CTA can have 227 KB (232448 bytes) of shared memory at most");
  }
  emu::allow_dynamic_shared(size_t(value));
  return cudaSuccess;
}
// The emulator does not know how many registers a kernel takes, and says 0.
struct cudaFuncAttributes {
  size_t sharedSizeBytes = emu::static_shared_bytes(), constSizeBytes = 0, localSizeBytes = 0;
  int maxThreadsPerBlock = 1024, numRegs = 0, ptxVersion = 90, binaryVersion = 90;
  int maxDynamicSharedSizeBytes = 227 * 1024, preferredShmemCarveout = -1;
};
template <typename Kernel>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel) {
  return emu::give(attributes, {});
}
template <typename Kernel>
inline cudaError_t cudaFuncSetCacheConfig(Kernel, cudaFuncCache) {
  return cudaSuccess;
}
template <typename Kernel>
inline cudaError_t cudaFuncSetSharedMemConfig(Kernel, cudaSharedMemConfig) {
  return cudaSuccess;
}
// By threads and dynamic shared memory alone: the emulator knows no registers.
template <typename Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int threads,
                                                                 size_t shared_bytes) {
  const int by_threads = threads > 0 ? 2048 / ((threads + 31) / 32 * 32) : 0;
  const int by_shared = int(size_t(228 * 1024) / (shared_bytes + 1024));
  *blocks = by_threads < by_shared ? by_threads : by_shared;
  if (*blocks > 32) *blocks = 32;
  return cudaSuccess;
}
template <typename Kernel>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, Kernel kernel, int threads, size_t shared_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, kernel, threads, shared_bytes);
}
template <typename Kernel>
inline cudaError_t cudaOccupancyMaxPotentialBlockSize(int* grid, int* block, Kernel, size_t = 0,
                                                      int limit = 0) {
  *block = limit > 0 && limit < 1024 ? limit : 1024;
  *grid = 3 * (2048 / *block);
  return cudaSuccess;
}

template <typename Kernel, typename SharedBytes>
inline cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(int* grid, int* block,
                                                                  Kernel kernel, SharedBytes,
                                                                  int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSize(grid, block, kernel, 0, limit);
}

// ---- pools: all memory is of one, which keeps nothing -------------------------------------------
inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  return emu::give(pool, nullptr);
}
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}
inline cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
template <typename T>
inline cudaError_t cudaMallocFromPoolAsync(T** memory, size_t bytes, cudaMemPool_t, cudaStream_t,
                                           FA_WHERE) {
  return emu::allocate_at(memory, bytes, "cudaMallocFromPoolAsync", where);
}

// ---- streams and events: work is done when its call returns -------------------------------------
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return emu::give(stream, nullptr); }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {  // an H100's
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID,
                                          const cudaStreamAttrValue*) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  return emu::give(priority, 0);
}
inline cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) { return emu::give(flags, 0); }
inline cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t = 0, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaStreamAddCallback(cudaStream_t stream,
                                         void (*callback)(cudaStream_t, cudaError_t, void*),
                                         void* data, unsigned) {
  callback(stream, emu::present_error(), data);
  return cudaSuccess;
}
inline cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*function)(void*), void* data) {
  function(data);
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return emu::present_error(); }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return emu::present_error(); }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaEventCreate(cudaEvent_t* event) { return emu::give(event, nullptr); }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr) { return cudaSuccess; }
inline cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t = nullptr, unsigned = 0) {
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return emu::present_error(); }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return emu::present_error(); }
// 0, and a note once: the emulator measures no time.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

// ---- launches by functions, as cuda_source.py writes their calls --------------------------------
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore,
  cudaLaunchAttributeAccessPolicyWindow,
  cudaLaunchAttributeCooperative,
  cudaLaunchAttributeSynchronizationPolicy,
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeClusterSchedulingPolicyPreference,
  cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributePriority = 8
};
union cudaLaunchAttributeValue {
  char pad[64];
  cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative, priority, programmaticStreamSerializationAllowed;
  struct {
    unsigned x, y, z;
  } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
  dim3 fa_gridDim, fa_blockDim;  // for cuda_source.py they are no coordinates
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

// A CTA has an SM for itself here.
template <typename Kernel>
inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel,
                                                  const cudaLaunchConfig_t* config) {
  int sms = 0;
  unsigned size = 1;
  for (unsigned i = 0; i < config->numAttrs; i++) {
    if (config->attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
    const auto& each = config->attrs[i].val.clusterDim;
    size = each.x * each.y * each.z;
  }
  const cudaError_t asked = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  *clusters = sms / int(size);
  return asked;
}

namespace emu {

// cudaLaunchKernel(kernel, ...) and, if `together`, cudaLaunchCooperativeKernel(kernel, ...)
template <typename... P>
inline cudaError_t launch_kernel(const char* name, bool together, void (*kernel)(P...), dim3 grid,
                                 dim3 block, void** arguments, size_t shared_bytes = 0,
                                 cudaStream_t stream = nullptr, FA_WHERE) {
  Launch launch(name, grid, block, shared_bytes, stream, where);
  if (together) launch.cluster(1, true);
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    launch([kernel](auto&... each) { kernel(each...); },
           *static_cast<std::remove_reference_t<P>*>(arguments[kIndex])...);
  }
  (std::index_sequence_for<P...>());
  return launch.result();
}
inline cudaError_t launch_kernel(const char* name, bool, const void*, dim3, dim3, void**,
                                 size_t = 0, cudaStream_t = nullptr, FA_WHERE) {
  return report_error(cudaErrorNotSupported, name, where,
                      "the emulator must see which kernel it is: name the kernel in the call");
}

// cudaLaunchKernelEx(config, kernel, arguments...)
class LaunchWith {
 public:
  LaunchWith(const char* name, const cudaLaunchConfig_t* config, FA_WHERE)
      : launch_(name, config->fa_gridDim, config->fa_blockDim, config->dynamicSmemBytes,
                config->stream, where) {
    for (unsigned i = 0; i < config->numAttrs; i++) {
      const cudaLaunchAttribute& each = config->attrs[i];
      if (each.id == cudaLaunchAttributeCooperative && each.val.cooperative)
        launch_.cluster(1, true);
      if (each.id == cudaLaunchAttributeClusterDimension) {
        const auto& size = each.val.clusterDim;
        launch_.cluster({size.x, size.y, size.z});
      }
    }
  }
  template <typename... P>
  cudaError_t operator()(void (*kernel)(P...), std::type_identity_t<P>... arguments) {
    launch_([kernel](auto&... each) { kernel(each...); }, arguments...);
    return launch_.result();
  }

 private:
  Launch launch_;
};

}  // namespace emu

#undef FA_WHERE
