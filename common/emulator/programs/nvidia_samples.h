// Stands in for the helper headers of NVIDIA's samples (helper_cuda.h, helper_functions.h and their
// kin) when a program does not bring them: checks of errors, timers of the host, options of the
// command line, files and comparisons.
#pragma once

#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <ios>
#include <ratio>
#include <string>
#include <vector>

#include "common/emulator/programs/runtime.h"

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif
#ifndef MAX
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#endif
#ifndef MIN
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#endif
#define STRCASECMP strcasecmp
#define STRNCASECMP strncasecmp
#define STRCPY(to, bytes, from) strcpy(to, from)
#define SPRINTF sprintf
#define SSCANF sscanf
#define FOPEN(file, name, mode) (file = fopen(name, mode))
#define FOPEN_FAIL(result) ((result) == nullptr)

// ---- errors -------------------------------------------------------------------------------------
template <typename T>
inline void check(T result, const char* call, const char* file, int line) {
  if (!result) return;
  fprintf(stderr, "CUDA error at %s:%d code=%u(%s) \"%s\"\n", file, line, unsigned(result),
          cudaGetErrorName(cudaError_t(result)), call);
  exit(EXIT_FAILURE);
}
inline void fa_last_error(const char* message, const char* file, int line, bool leave) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s(%d): getLastCudaError(): %s: (%d) %s.\n", file, line, message, int(error),
          cudaGetErrorString(error));
  if (leave) exit(EXIT_FAILURE);
}
#define checkCudaErrors(value) check((value), #value, __FILE__, __LINE__)
#define getLastCudaError(message) fa_last_error(message, __FILE__, __LINE__, true)
#define printLastCudaError(message) fa_last_error(message, __FILE__, __LINE__, false)
inline const char* _cudaGetErrorEnum(cudaError_t error) { return cudaGetErrorName(error); }

// ---- the device ---------------------------------------------------------------------------------
inline int _ConvertSMVer2Cores(int, int) { return 128; }
inline const char* _ConvertSMVer2ArchName(int, int) { return "Hopper"; }
inline int gpuDeviceInit(int device) {
  checkCudaErrors(cudaSetDevice(device));
  return device;
}
inline int gpuGetMaxGflopsDeviceId() { return 0; }
inline int findIntegratedGPU() {
  fprintf(stderr, "CUDA error: no integrated GPU\n");
  exit(EXIT_FAILURE);
}
inline bool checkCudaCapabilities(int major, int minor) {
  const cudaDeviceProp device;
  return device.major > major || (device.major == major && device.minor >= minor);
}
inline int ftoi(float value) { return int(value >= 0 ? value + 0.5f : value - 0.5f); }

// ---- options of the command line: -name, --name and --name=value --------------------------------
namespace emu {
// What follows NAME= in one of the arguments, "" for NAME alone; null: there is no such argument.
inline const char* option_of(int count, const char** words, const char* name) {
  const size_t length = strlen(name);
  for (int i = 1; i < count; i++) {
    const char* word = words[i] + strspn(words[i], "-");
    if (word == words[i] || strncasecmp(word, name, length) != 0) continue;
    if (word[length] == 0) return word + length;
    if (word[length] == '=') return word + length + 1;
  }
  return nullptr;
}
}  // namespace emu
inline bool checkCmdLineFlag(int count, const char** words, const char* name) {
  return emu::option_of(count, words, name) != nullptr;
}
inline int getCmdLineArgumentInt(int count, const char** words, const char* name) {
  const char* value = emu::option_of(count, words, name);
  return value ? atoi(value) : 0;
}
inline float getCmdLineArgumentFloat(int count, const char** words, const char* name) {
  const char* value = emu::option_of(count, words, name);
  return value ? float(atof(value)) : 0;
}
inline bool getCmdLineArgumentString(int count, const char** words, const char* name, char** to) {
  const char* value = emu::option_of(count, words, name);
  *to = const_cast<char*>(value);
  return value != nullptr;
}
template <typename T>
inline bool getCmdLineArgumentValue(int count, const char** words, const char* name, T* to) {
  const char* value = emu::option_of(count, words, name);
  if (value) *to = T(atof(value));
  return value != nullptr;
}
inline int findCudaDevice(int count, const char** words) {
  const int device = getCmdLineArgumentInt(count, words, "device");
  checkCudaErrors(cudaSetDevice(device));
  const cudaDeviceProp shape;
  printf("GPU Device %d: \"%s\" with compute capability %d.%d\n\n", device, shape.name, shape.major,
         shape.minor);
  return device;
}

// ---- timers: time of the host, in milliseconds --------------------------------------------------
struct StopWatchInterface {
  using Clock = std::chrono::steady_clock;
  double total = 0;
  int sessions = 0;
  bool running = false;
  Clock::time_point begin;
  double passed() const {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
};
inline bool sdkCreateTimer(StopWatchInterface** timer) {
  *timer = new StopWatchInterface;
  return true;
}
inline bool sdkDeleteTimer(StopWatchInterface** timer) {
  delete *timer;
  *timer = nullptr;
  return true;
}
inline bool sdkStartTimer(StopWatchInterface** timer) {
  (*timer)->begin = StopWatchInterface::Clock::now();
  return (*timer)->running = true;
}
inline bool sdkStopTimer(StopWatchInterface** timer) {
  (*timer)->total += (*timer)->passed();
  (*timer)->sessions++;
  (*timer)->running = false;
  return true;
}
inline bool sdkResetTimer(StopWatchInterface** timer) {
  (*timer)->total = (*timer)->sessions = 0;
  (*timer)->begin = StopWatchInterface::Clock::now();
  return true;
}
inline float sdkGetTimerValue(StopWatchInterface** timer) {
  return float((*timer)->total + ((*timer)->running ? (*timer)->passed() : 0));
}
inline float sdkGetAverageTimerValue(StopWatchInterface** timer) {
  return (*timer)->sessions ? float((*timer)->total / (*timer)->sessions) : 0;
}

// ---- files --------------------------------------------------------------------------------------
// Looks here and beside the program, then in data/ of both. To be freed; null: nowhere.
inline char* sdkFindFilePath(const char* name, const char* program) {
  const std::string path = program ? program : "";
  const std::string beside = path.substr(0, path.rfind('/') + 1);
  for (const char* folder : {"", "data/"}) {
    for (const std::string& at : {std::string(), beside}) {
      const std::string file = at + folder + name;
      if (std::ifstream(file)) return strdup(file.c_str());
    }
  }
  return nullptr;
}
// Numbers as text. Memory is allocated if there is none yet.
template <typename T>
inline bool sdkReadFile(const char* name, T** data, unsigned* count, bool) {
  std::ifstream file(name);
  std::vector<T> numbers;
  for (T number; file >> number;) numbers.push_back(number);
  if (numbers.empty()) return false;
  if (!*data) *data = static_cast<T*>(malloc(numbers.size() * sizeof(T)));
  *count = unsigned(numbers.size());
  std::copy(numbers.begin(), numbers.end(), *data);
  return true;
}
template <typename T, typename S>
inline bool sdkWriteFile(const char* name, const T* data, unsigned count, const S epsilon, bool,
                         bool append = false) {
  std::ofstream file(name, append ? std::ios::app : std::ios::trunc);
  if (!append) file << "# " << epsilon << "\n";
  for (unsigned i = 0; i < count; i++) file << data[i] << " ";
  file << "\n";
  return bool(file);
}

// ---- comparisons --------------------------------------------------------------------------------
// Whether none of the elements, or less than a share of `threshold`, differ by more than `epsilon`.
template <typename T, typename S>
inline bool compareData(const T* reference, const T* data, unsigned count, const S epsilon,
                        const float threshold = 0) {
  unsigned wrong = 0;
  for (unsigned i = 0; i < count; i++) {
    wrong += !(std::fabs(double(reference[i]) - double(data[i])) <= double(epsilon));
  }
  return threshold == 0 ? wrong == 0 : double(wrong) < double(count) * threshold;
}
// Whether the difference's norm is below `epsilon` times the reference's.
inline bool sdkCompareL2fe(const float* reference, const float* data, unsigned count,
                           const float epsilon) {
  double difference = 0, size = 0;
  for (unsigned i = 0; i < count; i++) {
    difference += std::pow(double(reference[i]) - double(data[i]), 2);
    size += std::pow(double(reference[i]), 2);
  }
  return size > 1e-14 && std::sqrt(difference) < std::sqrt(size) * double(epsilon);
}
