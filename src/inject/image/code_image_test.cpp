// Files, keys and failures of code_image.hpp and build_image.hpp.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <elf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <amalgam/core/status.hpp>
#include <amalgam/core/unique_fd.hpp>
#include <amalgam/inject/code_image.hpp>

#include "dumped_memory.hpp"
#include "emulated.hpp"
#include "inject/image/compiled_image.hpp"
#include "inject/image/contents.hpp"
#include "inject/image/elf_image.hpp"
#include "inject/image/text.hpp"
#include "inject/limits.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

namespace files = std::filesystem;

template <typename Call>
std::pair<errc, std::string> thrown_by(Call call) {
    try {
        call();
    } catch (const error& why) {
        return {why.code().code, why.what()};
    }
    return {errc::ok, "nothing was thrown"};
}

template <typename Call>
errc code_thrown_by(Call call) {
    return thrown_by(call).first;
}

code_image answering(const std::string& name, int what) {
    return compiled_image("#include <stddef.h>\nvoid " + name +
                              "_main(void* p, size_t n, void* target) { *(int*)target = " +
                              std::to_string(what) + "; }\n",
                          {.path = ".c", .name = name});
}

/// While it lives, write() fails past so many bytes of a file, as on a disk that is full.
class little_room {
public:
    explicit little_room(rlim_t bytes) {
        EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
        const rlimit few{bytes, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &few), 0);
    }
    little_room(const little_room&) = delete;
    ~little_room() {
        EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
        ::signal(SIGXFSZ, handler_);
    }

private:
    rlimit before_{};
    void (*const handler_)(int) = ::signal(SIGXFSZ, SIG_IGN);
};

TEST(signing_key, that_a_full_disk_has_cut_off_leaves_its_name_free) {
    const temp_folder folder;
    const std::string path = folder.with("one.key");
    const signing_key key = signing_key::generate();
    for (const rlim_t room : {rlim_t{0}, rlim_t{10}}) {
        const auto [code, why] = thrown_by([&] {
            const little_room full(room);
            key.save(path);
        });
        EXPECT_EQ(code, errc::denied) << why;
        EXPECT_FALSE(files::exists(path)) << why;
    }
    key.save(path);
    EXPECT_EQ(signing_key::load(path).signer(), key.signer());
}

TEST(signing_key, is_kept_in_a_new_file_that_only_its_owner_reads) {
    const temp_folder folder;
    const std::string path = folder.with("one.key");
    const signing_key key = signing_key::generate();
    key.save(path);
    struct stat how {};
    ASSERT_EQ(::stat(path.c_str(), &how), 0);
    EXPECT_EQ(how.st_mode & 0777u, 0600u);
    EXPECT_EQ(code_thrown_by([&] { signing_key::generate().save(path); }), errc::denied);
    EXPECT_EQ(signing_key::load(path).signer(), key.signer()) << "nothing is written over";
    EXPECT_EQ(parse_signer_key(to_text(key.signer())), key.signer());
    EXPECT_EQ(code_thrown_by([&] { (void)parse_signer_key(to_text(key.signer()).substr(1)); }),
              errc::invalid);
    ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
    EXPECT_EQ(code_thrown_by([&] { (void)signing_key::load(path); }), errc::denied);
    EXPECT_EQ(code_thrown_by([&] { key.save(folder.with("nowhere/one.key")); }), errc::denied);
    EXPECT_EQ(code_thrown_by([&] { (void)signing_key::load(folder.with("other.key")); }),
              errc::not_found);
    const std::string no_key = folder.with("none.key", "not a key\n");
    EXPECT_EQ(code_thrown_by([&] { (void)signing_key::load(no_key); }), errc::invalid);
    EXPECT_EQ(code_thrown_by([&] { (void)signing_key::load("/dev/zero"); }), errc::invalid);
}

class signing_key_memory : public testing::Test {
protected:
    void SetUp() override {
        if (is_emulated()) GTEST_SKIP() << "qemu makes up its own /proc/self/smaps";
        if (keeps_freed_memory) GTEST_SKIP() << "sanitizers do not give freed memory out again";
    }
    const temp_folder folder;
    const std::string path = folder.with("one.key");
};

TEST_F(signing_key_memory, has_a_key_only_where_no_core_dump_has_it) {
    signing_key::generate().save(path);
    char digits[64] = {};  // Of the secret; behind them is what everybody may know.
    std::array<std::uint8_t, 32> bytes{};
    {
        const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        ASSERT_EQ(::read(file.get(), digits, sizeof digits), static_cast<ssize_t>(sizeof digits));
        ASSERT_TRUE(detail::parse_digits({digits, sizeof digits}, bytes));
    }
    const hidden_bytes text({digits, sizeof digits});
    const hidden_bytes number({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    ::explicit_bzero(digits, sizeof digits);
    ::explicit_bzero(bytes.data(), bytes.size());
    {
        const signing_key key = signing_key::load(path), copy = key;
        (void)answering("x", 1).signed_by(copy);
        copy.save(folder.with("copy.key"));
        for (const mapping& found : places_of(text))
            ADD_FAILURE() << "the key's text is in " << found.name;
        const auto places = places_of(number);
        EXPECT_FALSE(places.empty());
        for (const mapping& found : places)
            EXPECT_FALSE(found.in_core_dumps) << found.name;
    }
    EXPECT_TRUE(places_of(number).empty()) << "it is wiped with the last copy";
}

TEST(code_image, is_found_in_the_first_folder_that_has_it) {
    const temp_folder first, second, third;
    answering("both", 1).save(second.with("both.image"));
    answering("both", 2).save(third.with("both.image"));
    answering("only", 3).save(third.with("only.image"));
    ::setenv("AMALGAM_IMAGE_PATH",
             (first.path() + ":" + second.path() + ":" + third.path()).c_str(), 1);
    EXPECT_EQ(code_image::find("both").hash(), code_image::load(second.with("both.image")).hash());
    EXPECT_EQ(code_image::find("only").name(), "only");
    const auto [code, sentence] = thrown_by([] { (void)code_image::find("none"); });
    EXPECT_EQ(code, errc::not_found);
    for (const temp_folder* each : {&first, &second, &third})
        EXPECT_NE(sentence.find(each->path()), std::string::npos) << sentence;
    EXPECT_EQ(code_thrown_by([] { (void)code_image::find("../none"); }), errc::invalid);

    ::unsetenv("AMALGAM_IMAGE_PATH");
    const in_folder here(third.path());
    EXPECT_EQ(code_image::find("only").name(), "only") << "in the current one";
}

TEST(code_image, says_by_its_code_why_it_is_not_read_or_written) {
    const temp_folder folder;
    EXPECT_EQ(code_thrown_by([&] { (void)code_image::load(folder.with("none.image")); }),
              errc::not_found);
    const std::string text = folder.with("text.image", "no image");
    EXPECT_EQ(code_thrown_by([&] { (void)code_image::load(text); }), errc::invalid);
    const auto [code, why] = thrown_by([&] { (void)code_image::load(folder.path()); });
    EXPECT_EQ(code, errc::not_found);
    EXPECT_EQ(why.find("the image " + folder.path() + " cannot be read (Is a directory)"), 0u)
        << why;
    files::resize_file(text, detail::limits::max_image_file_bytes + 1);
    const auto [too_long, how] = thrown_by([&] { (void)code_image::load(text); });
    EXPECT_EQ(too_long, errc::invalid);
    EXPECT_EQ(how.find("the image " + text + " is longer than 256 MiB"), 0u) << how;
    const code_image image = answering("some", 1);
    EXPECT_EQ(code_thrown_by([&] { image.save(folder.with("nowhere/some.image")); }), errc::denied);
    EXPECT_EQ(code_thrown_by([&] { image.save("/dev/full"); }), errc::denied);
}

TEST(code_image, that_cannot_be_written_leaves_the_one_that_was_there) {
    const temp_folder folder;
    const std::string path = folder.with("some.image");
    const code_image first = answering("some", 1), second = answering("some", 2);
    first.save(path);
    files::permissions(path, files::perms::owner_read | files::perms::owner_write);
    const auto [code, why] = thrown_by([&] {
        const little_room full(100);
        second.save(path);
    });
    EXPECT_EQ(code, errc::denied) << why;
    EXPECT_EQ(code_image::load(path).hash(), first.hash());
    EXPECT_EQ(std::distance(files::directory_iterator(folder.path()), {}), 1) << "nothing beside";

    const std::string link = folder.with("newest.image");
    files::create_symlink("some.image", link);
    second.save(link);
    EXPECT_TRUE(files::is_symlink(link));
    EXPECT_EQ(files::status(path).permissions(),
              files::perms::owner_read | files::perms::owner_write);
    EXPECT_EQ(code_image::load(path).hash(), second.hash());
}

TEST(code_image, joined_is_refused_for_parts_that_do_not_fit_and_is_signed_as_a_whole) {
    const auto elsewhere = [](const code_image& image) {
        detail::image_contents contents = image.contents();
        contents.architecture = this_architecture() == architecture::x86_64 ? architecture::aarch64
                                                                            : architecture::x86_64;
        return *code_image::parse(detail::image_contents::to_bytes(contents));
    };
    const code_image mine = answering("mine", 1), other = elsewhere(mine);
    const code_image named_otherwise = elsewhere(answering("another", 1));
    const code_image both = code_image::joined({mine, other});
    const std::vector<code_image> wrong[] = {
        {}, {mine, mine}, {mine, named_otherwise}, {both}, {both, mine}};
    for (const auto& parts : wrong)
        EXPECT_EQ(code_thrown_by([&] { (void)code_image::joined(parts); }), errc::invalid)
            << parts.size();
    const signing_key key = signing_key::generate();
    EXPECT_FALSE(code_image::joined({mine.signed_by(key), other.signed_by(key)}).signer());
    EXPECT_TRUE(both.signed_by(key).verify());
}

TEST(build_image, says_by_its_code_why_there_is_no_image) {
    const temp_folder folder;
    const std::string good =
        folder.with("good.c", "void good_main(void* p, unsigned long n, void* t) {}\n");
    EXPECT_EQ(code_thrown_by([&] { (void)build_image({.path = folder.with("none.c")}); }),
              errc::not_found);
    EXPECT_EQ(
        code_thrown_by([&] { (void)build_image({.path = good, .compiler = "no-such-compiler"}); }),
        errc::not_found);
    testing::internal::CaptureStderr();
    const std::string wrong = folder.with("wrong.c", "this is no C\n");
    EXPECT_EQ(code_thrown_by([&] { (void)build_image({.path = wrong}); }), errc::invalid);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("wrong.c:1"), std::string::npos)
        << "what the compiler says is there";
    EXPECT_EQ(code_thrown_by([&] { (void)build_image({.path = good, .name = "other"}); }),
              errc::invalid)
        << "it has no other_main";
    const auto [misnamed, words] =
        thrown_by([&] { (void)build_image({.path = good, .name = "a b"}); });
    EXPECT_EQ(misnamed, errc::invalid);
    EXPECT_TRUE(words.starts_with("an image cannot be named \"a b\", expected")) << words;
    for (const std::size_t alignment : {0ul, 3ul, 8192ul, (1ul << 32) + 8}) {
        const auto [code, sentence] =
            thrown_by([&] { (void)build_image({.path = good, .payload_alignment = alignment}); });
        EXPECT_EQ(code, errc::invalid) << alignment;
        EXPECT_NE(sentence.find("a power of two up to 4096"), std::string::npos) << sentence;
    }
    const code_image image = build_image({.path = good, .payload_alignment = 4096});
    EXPECT_EQ(image.name(), "good") << "that of the file";
    EXPECT_EQ(image.payload_alignment(), 4096u);
}

TEST(build_image, static_libraries_become_part_of_it_and_others_are_refused) {
    const temp_folder folder;
    const std::string seven = folder.with("seven.c", "long seven(void) { return 7; }\n");
    const std::string uses =
        folder.with("uses.c",
                    "long seven(void);\n"
                    "void uses_main(void* p, unsigned long n, void* target) {\n"
                    "    *(long*)target = seven();\n}\n");
    const auto system = [](const std::string& command) { return std::system(command.c_str()); };
    ASSERT_EQ(
        system("cd " + folder.path() + " && gcc -fPIC -c seven.c && ar rc libseven.a seven.o" +
               " && gcc -shared -o libseven.so seven.o"),
        0);
    const code_image image = build_image({.path = uses, .libraries = {folder.with("libseven.a")}});
    EXPECT_EQ(image.imports(), std::vector<std::string_view>{});
    EXPECT_EQ(image.exports(), std::vector<std::string_view>{"uses_main"});
    const auto [code, sentence] = thrown_by(
        [&] { (void)build_image({.path = uses, .libraries = {folder.with("libseven.so")}}); });
    EXPECT_EQ(code, errc::unsupported);
    EXPECT_NE(sentence.find("it needs libraries"), std::string::npos) << sentence;
}

// As when the disk was full while it was linked.
TEST(build_image, segments_past_the_end_of_the_shared_object_are_refused) {
    const temp_folder folder;
    folder.with("one.c", "long value = 3;\nlong one(void) { return value; }\n");
    ASSERT_EQ(std::system(("cd " + folder.path() + " && gcc -O2 -fPIC -shared -nostdlib one.c " +
                           "-Wl,-z,max-page-size=4096 -Wl,-z,separate-code -o one.so")
                              .c_str()),
              0);
    std::ifstream file(folder.with("one.so"), std::ios::binary);
    const std::vector<char> whole{std::istreambuf_iterator<char>(file), {}};
    Elf64_Ehdr header;
    std::memcpy(&header, whole.data(), sizeof header);
    Elf64_Phdr segment{};
    std::size_t last = 0;  // The header of the last segment that is loaded.
    for (std::size_t i = 0; i < header.e_phnum; ++i) {
        const std::size_t at = header.e_phoff + i * sizeof(Elf64_Phdr);
        Elf64_Phdr each;
        std::memcpy(&each, whole.data() + at, sizeof each);
        if (each.p_type != PT_LOAD) continue;
        last = at;
        segment = each;
    }
    const auto sentence_for = [&](Elf64_Phdr changed) {
        std::vector<char> object = whole;
        std::memcpy(object.data() + last, &changed, sizeof changed);
        const auto made = detail::image_from_elf(std::as_bytes(std::span(object)), "one", 16);
        return made ? std::string("it was taken") : std::string(made.sentence());
    };
    Elf64_Phdr too_long = segment;
    too_long.p_filesz = whole.size() - segment.p_offset + 1;
    EXPECT_EQ(sentence_for(too_long), "the shared object is truncated");
    Elf64_Phdr too_late = segment;
    too_late.p_offset = whole.size() + 1;
    EXPECT_EQ(sentence_for(too_late), "the shared object is truncated");
}

TEST(build_image, refuses_what_processes_have_for_themselves_only) {
    const temp_folder folder;
    for (const auto& [call, said] : {std::pair{"dlopen(0, 1)", "it loads libraries itself"},
                                     {"pthread_atfork(0, 0, 0)", "pthread_atfork()"},
                                     {"at_quick_exit(0)", "at_quick_exit()"}}) {
        // As imports: some systems link these functions statically.
        const std::string name(call, std::string(call).find('('));
        const std::string path = folder.with(
            "asks.c", "void* " + name + "();\nvoid asks_main(void* p, unsigned long n, " +
                          "void* t) { " + call + "; }\n");
        const auto [code, sentence] = thrown_by([&] {
            (void)build_image({.path = path, .flags = {"-w", "-fno-builtin"}});
        });
        EXPECT_EQ(code, errc::unsupported) << sentence;
        EXPECT_NE(sentence.find(said), std::string::npos) << sentence;
    }
}

}  // namespace
}  // namespace amalgam
