// Stands in for CUDA's header of this name when there is no CUDA: the emulator.
#pragma once

#include <limits>
#include <numbers>

#define CUDART_INF_F (std::numeric_limits<float>::infinity())
#define CUDART_NAN_F (std::numeric_limits<float>::quiet_NaN())
#define CUDART_MIN_DENORM_F (std::numeric_limits<float>::denorm_min())
#define CUDART_MAX_NORMAL_F (std::numeric_limits<float>::max())
#define CUDART_NEG_ZERO_F (-0.0f)
#define CUDART_ZERO_F 0.0f
#define CUDART_ONE_F 1.0f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_SQRT_TWO_F (std::numbers::sqrt2_v<float>)
#define CUDART_THIRD_F 0.333333333f
#define CUDART_PIO4_F 0.785398163f
#define CUDART_PIO2_F 1.570796327f
#define CUDART_PI_F (std::numbers::pi_v<float>)
#define CUDART_2_OVER_PI_F 0.636619772f
#define CUDART_L2E_F (std::numbers::log2e_v<float>)
#define CUDART_LN2_F (std::numbers::ln2_v<float>)

#define CUDART_INF (std::numeric_limits<double>::infinity())
#define CUDART_NAN (std::numeric_limits<double>::quiet_NaN())
#define CUDART_NEG_ZERO (-0.0)
#define CUDART_MIN_DENORM (std::numeric_limits<double>::denorm_min())
#define CUDART_ZERO 0.0
#define CUDART_ONE 1.0
#define CUDART_SQRT_TWO (std::numbers::sqrt2)
#define CUDART_SQRT_HALF 0.70710678118654752
#define CUDART_THIRD 0.33333333333333333
#define CUDART_PIO4 0.78539816339744831
#define CUDART_PIO2 1.5707963267948966
#define CUDART_PI (std::numbers::pi)
#define CUDART_2_OVER_PI 0.63661977236758134
#define CUDART_L2E (std::numbers::log2e)
#define CUDART_LN2 (std::numbers::ln2)
