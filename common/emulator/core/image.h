// The file that this code was loaded from: a program, or the shared library fa.
#pragma once

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <string>

namespace emu {

struct Image {
  std::string path;
  uintptr_t moved;  // bytes from an address in the file to the same address in memory
};

// The image of the function that asks. Kernels, emulator and harness are always in one image.
inline const Image& image() {
  static const Image found = [] {
    static const char here = 0;
    Dl_info info;
    void* map = nullptr;
    if (!dladdr1(&here, &info, &map, RTLD_DL_LINKMAP)) return Image{"/proc/self/exe", 0};
    const auto* const loaded = static_cast<const link_map*>(map);
    const bool is_library = loaded->l_name && *loaded->l_name;  // a program has no name here
    return Image{is_library ? loaded->l_name : "/proc/self/exe", loaded->l_addr};
  }();
  return found;
}

// The address in the image with these lower 32 bits: an image has less than 4 GB.
inline uintptr_t address_in_image(uint32_t lower) {
  const uintptr_t begin = image().moved;
  return begin + uint32_t(lower - uint32_t(begin));
}

}  // namespace emu
