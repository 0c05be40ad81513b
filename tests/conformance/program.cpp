// The conformance suite as a program, installed for out-of-tree transports.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/transport_suite.hpp"

namespace {

std::vector<std::string>& uris() {
    static std::vector<std::string> all;
    return all;
}

INSTANTIATE_TEST_SUITE_P(given, transport_suite, testing::ValuesIn(uris()));

constexpr const char* usage =
    "usage: amalgam-conformance --uri URI [--uri URI …] [options of GoogleTest]\n"
    "Tries every promise of a port at URI; \"{}\" in it becomes a number of its own for each "
    "port.\n"
    "Plug-ins are found in AMALGAM_PLUGIN_PATH.\n"
    "example: amalgam-conformance --uri unix:///tmp/test-{}.sock\n";

}  // namespace

int main(int argc, char** argv) {
    std::vector<char*> rest{argv[0]};
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--uri" && i + 1 < argc)
            uris().emplace_back(argv[++i]);
        else
            rest.push_back(argv[i]);
    }
    auto count = static_cast<int>(rest.size());
    testing::InitGoogleTest(&count, rest.data());
    if (uris().empty() || count > 1) {
        std::fputs(usage, stderr);
        return 2;
    }
    for (const std::string& uri : uris()) {
        const auto opened =
            amalgam::transport_registry::installed().open(amalgam::conformance::filled_in(uri));
        if (!opened) {
            std::fprintf(stderr, "amalgam-conformance: %s\n", opened.sentence().c_str());
            return 2;
        }
    }
    return RUN_ALL_TESTS();
}
