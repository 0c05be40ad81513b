#include <cstdio>
#include <cstdlib>

#include <amalgam/flow/fastflow_options.hpp>

namespace amalgam {

void print_and_exit(const failure& why) {
    // Another thread may be stuck in a write, with the lock in hand.
    if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
    std::fprintf(stderr, "amalgam: %s\n", why.sentence.c_str());
    std::_Exit(1);
}

}  // namespace amalgam
