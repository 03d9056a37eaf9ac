// Stands in for CUDA's header of this name when there is no CUDA: the emulator. Of cuRAND's
// generators it has XORWOW (Marsaglia, "Xorshift RNGs", 2003) and Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", 2011), with cuRAND's numbers: integers and uniform
// ones to the bit. Normal ones are more exact here than a GPU's fast logarithm and sine make them.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/emulator/core/vector_types.h"
#include "common/emulator/include/device_functions.h"

struct curandStateXORWOW {
  unsigned int d, v[5];  // a counter in steps of 362437, and the shift register
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
using curandStateXORWOW_t = curandStateXORWOW;
using curandState_t = curandStateXORWOW;
using curandState = curandStateXORWOW;

struct curandStatePhilox4_32_10 {
  uint4 ctr, output;
  uint2 key;
  unsigned int STATE;  // how many of the four numbers of output have been taken
  int boxmuller_flag, boxmuller_flag_double;
  float boxmuller_extra;
  double boxmuller_extra_double;
};
using curandStatePhilox4_32_10_t = curandStatePhilox4_32_10;

// ---- XORWOW
namespace emu {
// Takes n 2^shift steps of the shift register at once; shift is at most 67.
void skip_xorwow(uint32_t (&v)[5], uint64_t n, int shift);
}  // namespace emu

inline unsigned int curand(curandStateXORWOW* state) {
  const unsigned int t = state->v[0] ^ (state->v[0] >> 2);
  for (int i = 0; i < 4; i++) state->v[i] = state->v[i + 1];
  state->v[4] = (state->v[4] ^ (state->v[4] << 4)) ^ (t ^ (t << 1));
  state->d += 362437;
  return state->v[4] + state->d;
}
inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
  emu::skip_xorwow(state->v, n, 0);
  state->d += 362437 * unsigned(n);
}
// A subsequence has 2^67 numbers.
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
  emu::skip_xorwow(state->v, n, 67);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStateXORWOW* state) {
  const unsigned int low = 1099087573u * (unsigned(seed) ^ 0xaad26b49u);
  const unsigned int high = 2591861531u * (unsigned(seed >> 32) ^ 0xf7dcefddu);
  *state = {6615241 + high + low,
            {123456789 + low, 362436069 ^ low, 521288629 + high, 88675123 ^ high, 5783321 + low}};
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}

// ---- Philox4x32-10
namespace emu {
inline uint4 philox(uint4 x, uint2 key) {
  for (int round = 0; round < 10; round++) {
    const uint64_t first = 0xd2511f53ull * x.x, second = 0xcd9e8d57ull * x.z;
    x = make_uint4(unsigned(second >> 32) ^ x.y ^ key.x, unsigned(second),
                   unsigned(first >> 32) ^ x.w ^ key.y, unsigned(first));
    key.x += 0x9e3779b9;
    key.y += 0xbb67ae85;
  }
  return x;
}
// Adds n to the 64 bits low and high, and returns the carry.
inline unsigned int add(unsigned int& low, unsigned int& high, unsigned long long n) {
  const uint64_t sum = (uint64_t(high) << 32 | low) + n;
  low = unsigned(sum);
  high = unsigned(sum >> 32);
  return sum < n;
}
// Goes n blocks of four numbers further.
inline void next_of_philox(curandStatePhilox4_32_10* state, unsigned long long n) {
  add(state->ctr.z, state->ctr.w, add(state->ctr.x, state->ctr.y, n));
  state->output = philox(state->ctr, state->key);
}
}  // namespace emu

inline unsigned int curand(curandStatePhilox4_32_10* state) {
  const uint4& x = state->output;
  const unsigned int one =
      state->STATE < 2 ? (state->STATE == 0 ? x.x : x.y) : (state->STATE == 2 ? x.z : x.w);
  if (++state->STATE == 4) {
    emu::next_of_philox(state, 1);
    state->STATE = 0;
  }
  return one;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
  const unsigned int x = curand(state), y = curand(state), z = curand(state);
  return make_uint4(x, y, z, curand(state));
}
inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
  state->STATE += n % 4;
  emu::next_of_philox(state, n / 4 + state->STATE / 4);
  state->STATE %= 4;
}
// A subsequence has 2^66 numbers.
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
  emu::add(state->ctr.z, state->ctr.w, n);
  emu::next_of_philox(state, 0);
}
inline void curand_init(unsigned long long seed, unsigned long long subsequence,
                        unsigned long long offset, curandStatePhilox4_32_10* state) {
  *state = {.key = make_uint2(unsigned(seed), unsigned(seed >> 32))};
  skipahead_sequence(subsequence, state);
  skipahead(offset, state);
}

// ---- distributions
namespace emu {
// In (0, 1].
inline float uniform(unsigned int x) { return float(x) * 0x1p-32f + 0x1p-33f; }
inline double uniform(unsigned int x, unsigned int y) {
  return double(x ^ uint64_t(y) << 21) * 0x1p-53 + 0x1p-54;
}
// Two normal numbers of two uniform ones, by Box and Muller.
inline float2 normal(unsigned int x, unsigned int y) {
  const float length = std::sqrt(-2.0f * std::log(uniform(x)));
  const float angle = float(y) * 1.46291807e-9f + 1.46291807e-9f / 2;  // 2 pi 2^-32
  return make_float2(std::sin(angle) * length, std::cos(angle) * length);
}
inline double2 normal(unsigned int x0, unsigned int x1, unsigned int y0, unsigned int y1) {
  const double length = std::sqrt(-2.0 * std::log(uniform(x0, x1)));
  double2 result;
  sincospi(2 * uniform(y0, y1), &result.x, &result.y);
  return make_double2(result.x * length, result.y * length);
}
// One of a pair, and at the next call the other one.
template <typename Real, typename Pair>
Real one_of(const Pair& pair, int kind, int& flag, Real& extra) {
  if (flag == kind) {
    flag = 0;
    return extra;
  }
  const auto two = pair();
  flag = kind;
  extra = two.y;
  return two.x;
}
}  // namespace emu

template <typename State>
float curand_uniform(State* state) {
  return emu::uniform(curand(state));
}
inline double curand_uniform_double(curandStateXORWOW* state) {
  const unsigned int x = curand(state);
  return emu::uniform(x, curand(state));
}
inline double curand_uniform_double(curandStatePhilox4_32_10* state) {  // of one number
  return double(curand(state)) * 0x1p-32 + 0x1p-32;
}
template <typename State>
float2 curand_normal2(State* state) {
  const unsigned int x = curand(state);
  return emu::normal(x, curand(state));
}
template <typename State>
double2 curand_normal2_double(State* state) {
  const unsigned int x0 = curand(state), x1 = curand(state), y0 = curand(state);
  return emu::normal(x0, x1, y0, curand(state));
}
template <typename State>
float2 curand_log_normal2(State* state, float mean, float stddev) {
  const float2 x = curand_normal2(state);
  return make_float2(std::exp(mean + stddev * x.x), std::exp(mean + stddev * x.y));
}
template <typename State>
double2 curand_log_normal2_double(State* state, double mean, double stddev) {
  const double2 x = curand_normal2_double(state);
  return make_double2(std::exp(mean + stddev * x.x), std::exp(mean + stddev * x.y));
}
template <typename State>
float curand_normal(State* state) {
  return emu::one_of([=] { return curand_normal2(state); }, 1, state->boxmuller_flag,
                     state->boxmuller_extra);
}
template <typename State>
double curand_normal_double(State* state) {
  return emu::one_of([=] { return curand_normal2_double(state); }, 1, state->boxmuller_flag_double,
                     state->boxmuller_extra_double);
}
template <typename State>
float curand_log_normal(State* state, float mean, float stddev) {
  return emu::one_of([=] { return curand_log_normal2(state, mean, stddev); }, 2,
                     state->boxmuller_flag, state->boxmuller_extra);
}
template <typename State>
double curand_log_normal_double(State* state, double mean, double stddev) {
  return emu::one_of([=] { return curand_log_normal2_double(state, mean, stddev); }, 2,
                     state->boxmuller_flag_double, state->boxmuller_extra_double);
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return make_float4(emu::uniform(x.x), emu::uniform(x.y), emu::uniform(x.z), emu::uniform(x.w));
}
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return make_double2(emu::uniform(x.x, x.y), emu::uniform(x.z, x.w));
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
  const float2 low = curand_normal2(state), high = curand_normal2(state);
  return make_float4(low.x, low.y, high.x, high.y);
}
