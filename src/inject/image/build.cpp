#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/core/detail/read_file.hpp>
#include <amalgam/core/status.hpp>
#include <amalgam/inject/build_image.hpp>

#include "inject/image/contents.hpp"
#include "inject/image/elf_image.hpp"
#include "inject/limits.hpp"

namespace amalgam {

namespace {

namespace files = std::filesystem;

/// A temporary folder, deleted with its contents.
class brief_folder {
public:
    brief_folder() {
        std::string name = (files::temp_directory_path() / "amalgam-image-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr)
            throw error(errc::denied,
                        fmt::format("{} cannot be created: {}", name, std::strerror(errno)));
        path_ = name;
    }
    brief_folder(const brief_folder&) = delete;
    brief_folder& operator=(const brief_folder&) = delete;
    ~brief_folder() {
        std::error_code ignored;
        files::remove_all(path_, ignored);
    }
    std::string with(std::string_view file, std::string_view content) const {
        const std::string path = (path_ / file).string();
        std::ofstream(path, std::ios::binary) << content;
        return path;
    }
    std::string path_of(std::string_view file) const { return (path_ / file).string(); }

private:
    files::path path_;
};

// First source: the identifier of the image's static objects. Last source: the end of the unwind
// records.
constexpr std::string_view first_source =
    "__attribute__((visibility(\"hidden\"))) void* __dso_handle = &__dso_handle;\n";
constexpr std::string_view last_source =
    "__asm__(\".section .eh_frame,\\\"a\\\",%progbits\\n.balign 8\\n.long 0\\n.previous\");\n";

bool is_c(const std::string& path) {
    return files::path(path).extension() == ".c";
}

std::string compiler_for(const image_source& from, bool of_c) {
    if (!from.compiler.empty()) return from.compiler;
    const std::string base = of_c ? "gcc" : "g++";
    if (from.target == this_architecture()) return base;
    return (from.target == architecture::aarch64 ? "aarch64-linux-gnu-" : "x86_64-linux-gnu-") +
           base;
}

/// Returns its exit code. Quiet: discards its output.
int run(const std::vector<std::string>& words, bool quiet = false) {
    std::vector<char*> arguments;
    for (const std::string& each : words)
        arguments.push_back(const_cast<char*>(each.c_str()));
    arguments.push_back(nullptr);
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    for (const int each : {STDOUT_FILENO, STDERR_FILENO})
        if (quiet) ::posix_spawn_file_actions_addopen(&actions, each, "/dev/null", O_WRONLY, 0);
    const int failed =
        ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    const auto cannot_be_run = [&](int why) {
        return error({errc::not_found, why}, fmt::format("the compiler {} cannot be run: {}",
                                                         words[0], std::strerror(why)));
    };
    if (failed != 0) throw cannot_be_run(failed);
    int how = 0;
    while (::waitpid(child, &how, 0) == -1 && errno == EINTR) {
    }
    // So POSIX has it where the parent cannot be told in time, as under qemu.
    constexpr int not_run = 127;
    if (WIFEXITED(how) && WEXITSTATUS(how) == not_run) throw cannot_be_run(ENOENT);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 128;
}

/// Whether the compiler has that option. GCC is known to; others are tried.
bool accepts(const std::string& compiler, const std::string& option) {
    const std::string program = files::path(compiler).filename().string();
    if (program.ends_with("gcc") || (program.ends_with("g++") && !program.ends_with("clang++")))
        return true;
    return run({compiler, option, "-Werror", "-x", "c++", "-fsyntax-only", "/dev/null"}, true) == 0;
}

void compile(const image_source& from, const std::string& name, const brief_folder& folder,
             const std::string& object) {
    const std::string exports = folder.with(
        "exports", fmt::format("{{ global: {0}_main; {0}_payload_get_max_size; {0}_payload_init; "
                               "{0}_signature; local: *; }};\n",
                               name));
    const std::string c_compiler = compiler_for(from, true);
    const auto part = [&](std::string_view file, std::string_view source) {
        const std::string made = folder.path_of(std::string(file) + ".o");
        if (run({from.compiler.empty() ? c_compiler : from.compiler, "-x", "c", "-fPIC", "-c",
                 folder.with(file, source), "-o", made}) != 0)
            throw error(errc::invalid,
                        "the compiler cannot compile the code that every image contains");
        return made;
    };
    std::vector<std::string> words{compiler_for(from, is_c(from.path)), "-O2"};
    if (!is_c(from.path)) words.push_back("-std=c++20");
    // Only GCC makes unique symbols, which would keep an image loaded forever.
    const std::string option = "-fno-gnu-unique";
    if (!is_c(from.path) && accepts(words[0], option)) words.push_back(option);
    // clang 14 has TLS descriptors only, which are refused if it uses any.
    const std::string dialect = "-mtls-dialect=trad";
    if (from.target == architecture::aarch64 && accepts(words[0], dialect))
        words.push_back(dialect);
    words.insert(words.end(), from.flags.begin(), from.flags.end());
    words.insert(words.end(),
                 {"-fPIC", "-fno-plt", "-ftls-model=global-dynamic", "-shared", "-nostdlib"});
    // Larger pages for architectures that may have them.
    const bool large = from.target == architecture::aarch64;
    words.push_back(fmt::format("-Wl,-z,max-page-size={}", large ? 65536 : 4096));
    words.insert(
        words.end(),
        {"-Wl,-Bsymbolic", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,separate-code",
         "-Wl,--hash-style=sysv", "-Wl,--no-eh-frame-hdr", "-Wl,--build-id=none", "-Wl,-z,text",
         "-Wl,--version-script=" + exports, part("first.c", first_source), from.path});
    words.insert(words.end(), from.libraries.begin(), from.libraries.end());
    words.insert(words.end(), {"-lgcc", part("last.c", last_source), "-o", object});
    if (run(words) != 0)
        throw error(errc::invalid, fmt::format("{} does not compile; see the output of {} above",
                                               from.path, words[0]));
}

}  // namespace

bool is_image_name(std::string_view text) noexcept {
    const auto is_letter = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    return !text.empty() && !is_digit(text.front()) &&
           std::all_of(text.begin(), text.end(),
                       [&](char c) { return is_letter(c) || is_digit(c); });
}

code_image build_image(const image_source& from) {
    if (!files::exists(from.path))
        throw error(errc::not_found,
                    fmt::format("there is no file {}, expected a source of C or C++; "
                                "example: amalgam inject build codec.cpp",
                                from.path));
    if (!std::has_single_bit(from.payload_alignment) ||
        from.payload_alignment > detail::limits::max_payload_alignment)
        throw error(
            errc::invalid,
            fmt::format(
                "the payload alignment is {}, expected a power of two up to {}; example: 64",
                from.payload_alignment, detail::limits::max_payload_alignment));
    const std::string name = from.name.empty() ? files::path(from.path).stem().string() : from.name;
    if (!is_image_name(name))
        throw error(errc::invalid,
                    fmt::format("an image cannot be named \"{}\", expected a C identifier, as in "
                                "its function NAME_main; example: codec",
                                name));
    const brief_folder folder;
    const std::string object = folder.path_of("image.so");
    compile(from, name, folder, object);
    const auto made = detail::read_file(object, detail::limits::max_image_file_bytes);
    if (!made) throw error(made.code(), fmt::format("{} {}", object, made.sentence()));
    auto bytes = detail::image_from_elf(*made, name, from.payload_alignment);
    if (!bytes) throw error(bytes.code(), fmt::format("{}: {}", from.path, bytes.sentence()));
    auto image = code_image::parse(std::move(*bytes));
    if (!image) throw error(image.code(), image.sentence());
    for (const std::string_view each : image->exports())
        if (each == name + "_main") return std::move(*image);
    throw error(errc::invalid,
                fmt::format("{} has no function {}_main; expected, in C++ within extern \"C\": "
                            "void {}_main(void* payload, size_t payload_size, void* target_args)",
                            from.path, name, name));
}

}  // namespace amalgam
