// Searches lines kept by another process, with code sent there:
// `inject_search [PATTERN [URI [FILE]]]`. The lines come from a file, or are made up.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/bulk.hpp>
#include <amalgam/inject.hpp>

namespace {

std::vector<std::string> lines_of(const char* path) {
    std::vector<std::string> lines;
    if (path != nullptr) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);)
            lines.push_back(line);
    } else {
        for (int i = 0; i < 50000; ++i)
            lines.push_back("sensor " + std::to_string(i % 97) + " says " +
                            std::to_string(i * 7 % 1000));
    }
    return lines;
}

/// The other process: keeps lines, and knows nothing about what is done with them.
void serve(const std::string& uri, std::vector<std::string> lines, int address_to, int end_from) {
    am::engine on(uri);
    am::injection_options options;
    options.allows.unsigned_too = true;  // Both processes are ours.
    options.target_args = &lines;
    const am::injection_target target(on, std::move(options));
    const std::string address = on.address();
    if (address.empty())
        throw am::error(am::errc::invalid,
                        uri + " does not listen; example: inject_search . tcp://127.0.0.1:0");
    (void)!::write(address_to, address.data(), address.size());
    char end = 0;
    (void)!::read(end_from, &end, 1);
}

void search(const std::string& uri, const std::string& address, const std::string& pattern) {
    am::engine on(uri);
    on.define("looked_at", [](std::uint64_t lines) {
        std::printf("%llu lines searched\n", static_cast<unsigned long long>(lines));
    });
    std::string found(1 << 20, '\0');
    const am::exposed into = am::expose(on, found, am::access::write);

    am::injector inject(on);
    const auto search = inject.add<std::pair<std::uint64_t, std::uint64_t>(std::string, am::bulk)>(
        am::code_image::find("search"));
    const auto [count, bytes] = search.call(on.lookup(address), pattern, into);

    found.resize(bytes);
    std::printf("%llu lines have \"%s\", the first: %s\n", static_cast<unsigned long long>(count),
                pattern.c_str(), found.substr(0, found.find('\n')).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    const std::string pattern = argc > 1 ? argv[1] : "sensor (7|8) says [0-9]*5$";
    const std::string uri = argc > 2 ? argv[2] : "shm://";
    std::vector<std::string> lines = lines_of(argc > 3 ? argv[3] : nullptr);
    int address[2], end[2];
    if (::pipe(address) != 0 || ::pipe(end) != 0) return 1;
    const pid_t child = ::fork();
    if (child < 0) return 1;
    int code = 1;
    try {
        if (child == 0) {
            ::close(end[1]);
            serve(uri, std::move(lines), address[1], end[0]);
            return 0;
        }
        ::close(address[1]);
        std::string where(256, '\0');
        const auto got = ::read(address[0], where.data(), where.size());
        where.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
        if (!where.empty()) search(uri, where, pattern);
        code = where.empty() ? 1 : 0;
    } catch (const am::error& why) {
        std::fprintf(stderr, "inject_search: %s\n", why.what());
    }
    if (child == 0) return 1;
    ::close(end[1]);
    ::waitpid(child, nullptr, 0);
    return code;
}
