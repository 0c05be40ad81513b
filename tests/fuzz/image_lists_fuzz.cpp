#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/status.hpp>
#include <amalgam/inject/image_revocations.hpp>

#include "fuzz/fuzz.hpp"
#include "inject/target/version_floors.hpp"
#include "temp_folder.hpp"

// The files that a target reads: revocation lists, and versions. Refused with a reason, or what is
// in them comes back.
namespace amalgam::fuzz {

void run_one(const_bytes input) {
    const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
    const auto list = image_revocations::parse(text);
    require(list || (list.code() == errc::invalid && !list.sentence().empty()),
            "a list is refused with a reason");
    if (list)
        require(list->keys.size() + list->images.size() <= text.size() / 68, "no more is in it");

    static const temp_folder own;
    const std::string path = own.with("versions");
    std::ofstream(path, std::ios::binary) << text;
    try {
        detail::version_floors versions(path);
        const std::uint64_t before = versions.of("search");
        require(versions.raise("search", 5) == (before < 5), "a version rises only");
        require(detail::version_floors(path).of("search") == versions.of("search"),
                "what has risen is read again");
    } catch (const error& why) {
        require(why.code() == errc::invalid, "a file of versions is refused with a reason");
    }
}

std::span<const std::string_view> seeds() {
    static const std::string digits(64, 'a');
    static const std::vector<std::string> texts{
        "key " + digits + " # stolen\nimage " + digits + "\n\n#\n",
        "search 3\nsearch 4\nwipe 1\nse", "search 18446744073709551615\n", ""};
    static const std::vector<std::string_view> views(texts.begin(), texts.end());
    return views;
}

}  // namespace amalgam::fuzz
