// Checks after every test that nothing is left behind: descriptors, mapped shared memory, and named
// system objects.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

namespace amalgam::detail {
namespace {

/// How many of each kind this process has.
std::map<std::string, int> belongings() {
    std::map<std::string, int> all;
    std::error_code error;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd", error)) {
        const std::string what = std::filesystem::read_symlink(one.path(), error).string();
        // For sockets and pipes, drop the number after the name.
        if (!error) ++all["descriptor " + what.substr(0, what.find(":["))];
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find("memfd:amalgam-shm") != line.npos) ++all["mappings of shared memory"];
    for (const auto& one : std::filesystem::directory_iterator("/dev/shm", error))
        if (one.path().filename().string().find("amalgam-shm") == 0) ++all["files in /dev/shm"];
    return all;
}

class leak_check final : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo&) override { before_ = belongings(); }
    void OnTestEnd(const testing::TestInfo& test) override {
        if (test.result()->Failed()) return;  // It may have stopped anywhere.
        const auto after = belongings();
        for (const auto& [what, count] : after) {
            const auto at = before_.find(what);
            EXPECT_EQ(count, at == before_.end() ? 0 : at->second) << what << " left behind";
        }
    }

    std::map<std::string, int> before_;
};

[[maybe_unused]] const bool appended = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new leak_check);
    return true;
}();

}  // namespace
}  // namespace amalgam::detail
