// Behind a library's function: a program that asks for too much memory, and goes on.
extern "C" __attribute__((visibility("default"))) int leave_error() {
  void* memory = nullptr;
  return cudaMalloc(&memory, size_t(1) << 60);
}
