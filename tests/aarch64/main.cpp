// Runs images of code as a target on AArch64 would: links each one given, calls its main twice with
// a number, and prints that.
#include <cstdio>
#include <string>

#include <amalgam/core/status.hpp>

#include "inject/link/linked_image.hpp"

int main(int argc, char** argv) {
    using namespace amalgam;
    try {
        for (int i = 1; i < argc; ++i) {
            const code_image image = code_image::load(argv[i]);
            const detail::linked_image linked(image, detail::runtime_symbol);
            const std::string name(image.name());
            const auto run =
                reinterpret_cast<void (*)(void*, std::size_t, void*)>(linked.find(name + "_main"));
            long number = 0;
            for (int times = 0; times < 2; ++times)
                run(nullptr, 0, &number);
            std::printf("%s %ld\n", name.c_str(), number);
        }
    } catch (const error& why) {
        std::printf("%s\n", why.what());
        return 1;
    }
    return 0;
}
