// What a problem and its tensors must be, and why a kernel does not take them: one sentence each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/launch/problem.h"
#include "common/launch/registry.h"

namespace fa {

// How sentences call a field of a problem or of the options: by its name in fa.h, "seq_len"; after
// name_fields_as_options(), which a program with a command line calls first, as the option,
// "--seq-len".
std::string field(std::string_view name);
void name_fields_as_options();

// Throws BadInput unless the shape makes sense, and, without any_length, unless seq_len is a
// multiple of 128, as the numbered kernels want it.
void validate(const Problem& problem, bool any_length = false);

// Why the kernel does not accept a valid problem: one sentence that says what it would accept, such
// as "takes mask none, not causal". Empty: it does.
std::string refusal(const Kernel& kernel, const Problem& problem);

// The same for tensors with all their strides, on the GPU present: also of its compute capability,
// of strides and of a second output.
std::string refusal(const Kernel& kernel, const Problem& problem, const Tensors& with_strides);

// The tensors with all their strides: those of a contiguous tensor where there are none. Throws
// BadInput for strides that no kernel takes: of tensors that are written, rows must not overlap.
// These are O and, with `gradients`, dQ, dK and dV, which lie as Q, K and V do.
Tensors with_strides(const Problem& problem, const Tensors& tensors, bool gradients = false);

// How many bytes a tensor has from its first element to its last one.
size_t span_bytes(const Problem& problem, const Strides& strides, bool of_keys);

// Throws BadInput unless the pointer to the tensor is there and a multiple of 16 bytes; those to
// Q, K, V and O.
void check_alignment(const void* pointer, const char* tensor);
void check_floats(const float* pointer, const char* name);  // of 4 bytes
void check_pointers(const Tensors& tensors);

// Throws BadInput for strides and scales of e4m3 that no kernel takes.
void check_e4m3(const Problem& problem, const Tensors& with_strides, const OfE4m3& e4m3);

// A compute capability as one writes it, "9.0" for 90; and why a CTA cannot have so many bytes of
// shared memory on the GPU present. Empty: it can.
std::string capability(int value);
std::string lack_of_shared(size_t bytes);

}  // namespace fa
