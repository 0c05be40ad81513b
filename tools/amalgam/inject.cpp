#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/inject/build_image.hpp>
#include <amalgam/inject/image_manifest.hpp>
#include <amalgam/inject/image_revocations.hpp>

#include "commands.hpp"
#include "json_output.hpp"

namespace amalgam::tool {
namespace {

/// Values of --processor.
constexpr std::pair<std::string_view, architecture> known_processors[] = {
    {"x86-64", architecture::x86_64}, {"aarch64", architecture::aarch64}};

std::optional<architecture> processor_named(std::string_view text) {
    for (const auto& [known, what] : known_processors)
        if (known == text) return what;
    return std::nullopt;
}

/// How an image is signed.
struct manifest_options {
    std::string key;
    unsigned days = 365;
    bool forever = false;
    image_manifest says;

    code_image sign(const code_image& image) {
        // An hour for clocks that differ, as certificates have it.
        const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
        says.not_before = now - std::chrono::hours(1);
        if (!forever) says.not_after = now + std::chrono::hours(24) * days;
        return image.signed_by(signing_key::load(key), says);
    }
};

struct build_options {
    image_source from;
    std::string to;
    manifest_options sign;
};

/// The installed headers next to this program. Empty if not installed.
std::optional<std::string> installed_headers() {
    std::error_code failed;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
    const auto folder = (program.parent_path() / AMALGAM_HEADERS_FROM_TOOL).lexically_normal();
    if (failed || !std::filesystem::exists(folder / "amalgam/inject/image.h", failed))
        return std::nullopt;
    return folder.string();
}

void build(build_options& options) {
    image_source from = options.from;
    if (const auto headers = installed_headers()) from.flags.push_back("-I" + *headers);
    code_image image = build_image(from);
    if (!options.sign.key.empty()) image = options.sign.sign(image);
    image.save(options.to.empty() ? std::string(image.name()) + ".image" : options.to);
}

std::string in_a_row(const std::vector<std::string_view>& words) {
    return fmt::format("{}", fmt::join(words, " "));
}

json_object as_json(const image_manifest& says) {
    json_object all{{"version", says.version},
                    {"not_before", utc(says.not_before)},
                    {"not_after", nullptr},
                    {"names", says.names},
                    {"groups", says.groups}};
    if (says.not_after) all["not_after"] = utc(*says.not_after);
    return all;
}

void show_as_json(const code_image& image) {
    json_object all{{"name", image.name()},          {"processors", json_object::array()},
                    {"bytes", image.bytes().size()}, {"hash", to_text(image.hash())},
                    {"signed_by", nullptr},          {"signature_valid", false},
                    {"manifest", nullptr},           {"exports", image.exports()},
                    {"imports", image.imports()}};
    for (const architecture each : image.architectures())
        all["processors"].push_back(name(each));
    if (image.signer()) {
        all["signed_by"] = to_text(*image.signer());
        all["signature_valid"] = image.verify();
    }
    if (const image_manifest* const says = image.manifest()) all["manifest"] = as_json(*says);
    print_json(all);
}

void show(const std::string& path, bool json) {
    const code_image image = code_image::load(path);
    if (json) return show_as_json(image);
    std::vector<std::string_view> processors;
    for (const architecture each : image.architectures())
        processors.push_back(name(each));
    fmt::print("name       {}\nprocessor  {}\nbytes      {}\nhash       {}\n", image.name(),
               in_a_row(processors), image.bytes().size(), to_text(image.hash()));
    fmt::print("signed by  {}\n", !image.signer()  ? "nobody"
                                  : image.verify() ? to_text(*image.signer())
                                                   : "invalid signature");
    if (const image_manifest* const says = image.manifest())
        fmt::print("manifest   {}\n", to_text(*says));
    fmt::print("exports    {}\nimports    {}\n", in_a_row(image.exports()),
               in_a_row(image.imports()));
}

void join(const std::vector<std::string>& paths, const std::string& to) {
    std::vector<code_image> parts;
    for (const std::string& each : paths)
        parts.push_back(code_image::load(each));
    code_image::joined(parts).save(to);
}

void make_key(const std::string& path) {
    const signing_key key = signing_key::generate();
    key.save(path);
    fmt::print("{}\n", to_text(key.signer()));
}

/// `needs`: the option that says that an image is signed at all; null: it always is.
void add_signing(CLI::App& to, manifest_options& how, CLI::Option* needs) {
    std::vector<CLI::Option*> added{
        to.add_option("--days", how.days, "How long the image may run; default: 365")
            ->check(CLI::Range(1, 36500)),
        to.add_flag("--forever", how.forever, "It may always run, unless it is revoked")
            ->excludes("--days"),
        to.add_option("--image-version", how.says.version,
                      "Targets that had a higher one of this name refuse it; default: 0"),
        to.add_option("--for", how.says.names,
                      "Name of a target that it is for, as its certificate says; may be repeated; "
                      "default: all"),
        to.add_option("--for-group", how.says.groups,
                      "Group of targets that it is for; may be repeated")};
    if (needs == nullptr) return;
    for (CLI::Option* const each : added)
        each->needs(needs);
}

/// A hash by its digits, or that of an image file.
image_hash hash_named(const std::string& text) {
    const bool is_digits =
        text.size() == 64 && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
    return is_digits ? image_hash(parse_signer_key(text)) : code_image::load(text).hash();
}

struct revoke_options {
    std::string list;
    std::vector<std::string> keys, images;
};

void revoke(const revoke_options& options) {
    image_revocations all;
    for (const std::string& each : options.keys)
        all.keys.push_back(parse_signer_key(each));
    for (const std::string& each : options.images)
        all.images.push_back(hash_named(each));
    if (all.keys.empty() && all.images.empty())
        throw error(errc::invalid,
                    "nothing to revoke; expected --image or --key; example: amalgam "
                    "inject revoke revoked.txt --image search.image");
    all.append_to(options.list);
}

void add_build(CLI::App& inject) {
    auto options = std::make_shared<build_options>();
    auto* command = inject.add_subcommand("build", "Compile a C or C++ file into an image");
    command->footer("example: amalgam inject build codec.cpp -o codec.image --flag -O3");
    image_source& from = options->from;
    command
        ->add_option("file", from.path,
                     "Source file that defines NAME_main; see amalgam/inject/image.h")
        ->required();
    command->add_option("-o,--output", options->to, "The image to write; default: NAME.image");
    command->add_option("--name", from.name, "The image's NAME; default: the file's name")
        ->check(CLI::Validator(
            [](const std::string& text) {
                return is_image_name(text)
                           ? std::string()
                           : fmt::format("\"{}\" is not a C identifier; example: codec", text);
            },
            ""));
    command->add_option("--compiler", from.compiler, "Compiler; default: gcc or g++");
    command
        ->add_option_function<std::string>(
            "--processor",
            [&from](const std::string& text) { from.target = *processor_named(text); },
            "Target processor: x86-64 or aarch64; default: this host's")
        ->check(CLI::Validator(
            [](const std::string& text) {
                return processor_named(text)
                           ? std::string()
                           : fmt::format("unknown processor \"{}\", expected x86-64 or aarch64",
                                         text);
            },
            ""));
    command->add_option("--flag", from.flags, "Flag for the compiler; may be repeated");
    command->add_option("--library", from.libraries,
                        "A static library to link into the image; may be repeated");
    command
        ->add_option("--align", from.payload_alignment,
                     "Alignment of payloads: a power of two up to 4096")
        ->check(CLI::Validator(
            [](const std::string& text) {
                std::size_t given = 0;
                const bool good = CLI::detail::lexical_cast(text, given) &&
                                  std::has_single_bit(given) && given <= 4096;
                return good ? std::string()
                            : fmt::format("\"{}\" is not a power of two up to 4096", text);
            },
            ""));
    auto* const sign = command->add_option("--sign", options->sign.key,
                                           "Sign the image with this key; see amalgam inject key");
    add_signing(*command, options->sign, sign);
    command->callback([options] { build(*options); });
}

}  // namespace

void add_inject(CLI::App& app) {
    auto* inject = app.add_subcommand("inject", "Build, sign and inspect images of code to inject");
    inject->require_subcommand(1);
    add_build(*inject);

    auto path = std::make_shared<std::string>();
    auto* shown =
        inject->add_subcommand("show", "Show an image's processors, imports, exports and signer");
    shown->footer("example: amalgam inject show codec.image");
    shown->add_option("image", *path, "The image to show")->required();
    auto json = std::make_shared<bool>(false);
    add_json(*shown, *json);
    shown->callback([path, json] { show(*path, *json); });

    struct sign_options : manifest_options {
        std::string image, to;
    };
    auto signs = std::make_shared<sign_options>();
    auto* sign = inject->add_subcommand(
        "sign", "Sign an image: for how long, for which targets, and as which version");
    sign->footer("example: amalgam inject sign search.image --key ours.key --for node7 --days 30");
    sign->add_option("image", signs->image, "The image to sign; an earlier signature goes")
        ->required();
    sign->add_option("--key", signs->key, "The key to sign with; see amalgam inject key")
        ->required();
    sign->add_option("-o,--output", signs->to, "The signed image; default: in its place");
    add_signing(*sign, *signs, nullptr);
    sign->callback([signs] {
        signs->sign(code_image::load(signs->image))
            .save(signs->to.empty() ? signs->image : signs->to);
    });

    auto revokes = std::make_shared<revoke_options>();
    auto* revoked = inject->add_subcommand(
        "revoke", "Add images or signers to a list that targets refuse to run");
    revoked->footer("example: amalgam inject revoke revoked.txt --image search.image");
    revoked->add_option("list", revokes->list, "The list; made if it is not there")->required();
    revoked->add_option("--image", revokes->images,
                        "An image, or the hash that amalgam inject show prints; may be repeated");
    revoked->add_option("--key", revokes->keys,
                        "A signer, as amalgam inject key prints it; may be repeated");
    revoked->callback([revokes] { revoke(*revokes); });

    auto parts = std::make_shared<std::vector<std::string>>();
    auto to = std::make_shared<std::string>();
    auto* joined = inject->add_subcommand("join", "Join images for several processors into one");
    joined->footer("example: amalgam inject join codec.x86-64 codec.aarch64 -o codec.image");
    joined->add_option("image", *parts, "Images to join, one per processor")->required();
    joined->add_option("-o,--output", *to, "The image")->required();
    joined->callback([parts, to] { join(*parts, *to); });

    auto key_path = std::make_shared<std::string>();
    auto* key = inject->add_subcommand(
        "key", "Generate a key to sign images with, and print its public key");
    key->footer("example: amalgam inject key mine.key");
    key->add_option("file", *key_path, "File to write the private key to; must not exist yet")
        ->required();
    key->callback([key_path] { make_key(*key_path); });
}

}  // namespace amalgam::tool
