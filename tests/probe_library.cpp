// A library for the tests of bench/peers/shared_library.h to find.
extern "C" int fa_probe_twice(int value) { return 2 * value; }
