// Declared in include/curand_kernel.h: skipping ahead in the sequence of XORWOW.
#include <array>
#include <cstdint>
#include <vector>

namespace emu {
namespace {

// A step is linear in the register's 160 bits (exclusive or is the sum), so k steps are a matrix,
// whose square is 2 k steps.
using Register = std::array<uint32_t, 5>;
using Matrix = std::array<Register, 160>;  // row i: what becomes of bit i alone

constexpr int kPowers = 131;

Register times(const Register& v, const Matrix& matrix) {
  Register result{};
  for (int i = 0; i < 160; i++) {
    if ((v[i / 32] >> i % 32 & 1) == 0) continue;
    for (int word = 0; word < 5; word++) result[word] ^= matrix[i][word];
  }
  return result;
}

// Matrix i is of 2^i steps.
std::vector<Matrix> all_powers() {
  std::vector<Matrix> powers(kPowers);
  for (int i = 0; i < 160; i++) {
    Register v{};
    v[i / 32] = 1u << i % 32;
    const uint32_t t = v[0] ^ (v[0] >> 2);
    powers[0][i] = {v[1], v[2], v[3], v[4], v[4] ^ (v[4] << 4) ^ t ^ (t << 1)};
  }
  for (int power = 1; power < kPowers; power++) {
    const Matrix& half = powers[power - 1];
    for (int i = 0; i < 160; i++) powers[power][i] = times(half[i], half);
  }
  return powers;
}

}  // namespace

void skip_xorwow(uint32_t (&v)[5], uint64_t n, int shift) {
  static const std::vector<Matrix> powers = all_powers();
  Register now{v[0], v[1], v[2], v[3], v[4]};
  for (int i = shift; n > 0; i++, n >>= 1) {
    if (n & 1) now = times(now, powers[i]);
  }
  for (int word = 0; word < 5; word++) v[word] = now[word];
}

}  // namespace emu
