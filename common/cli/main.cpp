// The main function of every kernel's program and of the one with all kernels.
#include "common/cli/cli.h"

int main(int argc, char** argv) { return fa::run_program(argc, argv); }
