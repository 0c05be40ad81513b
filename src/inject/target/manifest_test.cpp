// What a manifest says, and what a target makes of it: when, where, which version, for whom.
#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>

#include <amalgam/fabric/key_folder.hpp>
#include <amalgam/inject/image_manifest.hpp>
#include <amalgam/inject/image_revocations.hpp>
#include <amalgam/inject/injection_ring.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "contains.hpp"
#include "inject/protocol/procedures.hpp"
#include "inject/source/injector_testing.hpp"
#include "inject/target/judge.hpp"
#include "temp_folder.hpp"

namespace amalgam {
namespace {

using std::chrono::sys_seconds;

constexpr sys_seconds noon{std::chrono::seconds(1800000000)};

/// A target whose time of day the test sets, and a signer that it trusts.
class manifest_test : public injector_test {
protected:
    injection_options judged(injection_policy allows = {}) {
        injection_options options;
        options.target_args = &sum;
        options.allows = std::move(allows);
        options.allows.trusted = {key.signer()};
        options.time_of_day = [this] {
            return std::chrono::system_clock::time_point(today.load());
        };
        return options;
    }
    code_image made(const image_manifest& says) { return adder().signed_by(key, says); }
    /// "" if it ran, else why it was refused.
    std::string run(const code_image& image, shipping how = shipping::once) {
        return run(inject, there, image, how);
    }
    static std::string run(injector& by, const peer& where, const code_image& image,
                           shipping how = shipping::once) {
        try {
            (void)by.add(image).create(1, how).call(where);
            return {};
        } catch (const error& why) {
            EXPECT_EQ(why.code(), errc::denied) << why.what();
            return why.what();
        }
    }

    const signing_key key = signing_key::generate();
    std::atomic<sys_seconds> today{noon};
    const temp_folder own;
};

TEST_F(manifest_test, a_manifest_is_within_the_signature_and_comes_back) {
    image_manifest says{7, noon, noon + 1h, {"node7", "node8"}, {"compute"}};
    const code_image image = made(says);
    ASSERT_NE(image.manifest(), nullptr);
    EXPECT_EQ(*image.manifest(), says);
    EXPECT_TRUE(image.verify());
    EXPECT_EQ(image.hash(), adder().hash());
    EXPECT_EQ(to_text(says),
              "version 7, from 2027-01-15 08:00:00 UTC, until 2027-01-15 09:00:00 UTC, for node7, "
              "node8, group compute");
    EXPECT_EQ(to_text(image_manifest{}), "version 0, without an end, for all targets");
    EXPECT_EQ(adder().manifest(), nullptr);
    EXPECT_EQ(*adder().signed_by(key).manifest(), image_manifest{});
    // Every byte of it counts.
    for (std::size_t at = adder().bytes().size(); at < image.bytes().size(); ++at) {
        std::vector<std::byte> changed(image.bytes().begin(), image.bytes().end());
        changed[at] ^= std::byte{1};
        const auto read = code_image::parse(changed);
        EXPECT_FALSE(read && read->verify()) << at;
    }
}

TEST_F(manifest_test, manifests_beyond_their_limits_are_neither_made_nor_read) {
    const sys_seconds before{-1s}, late{std::chrono::seconds(7258118400)};
    for (const image_manifest& bad :
         std::vector<image_manifest>{{.not_before = before},
                                     {.not_before = late},
                                     {.not_after = before},
                                     {.not_after = late},
                                     {.not_before = noon, .not_after = noon - 1s},
                                     {.names = {""}},
                                     {.names = {"a\nb"}},
                                     {.groups = {std::string(256, 'a')}},
                                     {.groups = std::vector<std::string>(65, "a")}})
        EXPECT_EQ(error_of([&] { (void)made(bad); }).code(), errc::invalid) << to_text(bad);
    EXPECT_NO_THROW((void)made({.not_before = noon,
                                .not_after = late - 1s,
                                .names = std::vector<std::string>(64, std::string(255, 'a'))}));
}

TEST_F(manifest_test, an_image_runs_within_its_time_by_the_targets_clock) {
    const injection_target target(at_target, judged());
    const code_image image = made({.not_before = noon, .not_after = noon + 10s});
    today = noon - 1s;
    EXPECT_EQ(run(image),
              "the image adder may not run here: it is not valid before 2027-01-15 08:00:00 UTC, "
              "but it is 2027-01-15 07:59:59 UTC here");
    for (const sys_seconds when : {noon, noon + 10s}) {
        today = when;
        EXPECT_EQ(run(image), "");
    }
    today = noon + 11s;
    for (const shipping how : {shipping::once, shipping::always})
        poll_until([&] { return !run(image, how).empty(); });
    EXPECT_TRUE(contains(run(image), "it has expired on 2027-01-15 08:00:10 UTC")) << run(image);
    EXPECT_EQ(target.images(), 0u);
}

TEST_F(manifest_test, an_image_that_expires_is_ended_though_nobody_calls) {
    for (const handler run_by : {handler::ult, handler::inline_}) {
        injection_options options = judged();
        options.run = run_by;
        today = noon;
        const injection_target target(at_target, options);
        EXPECT_EQ(run(made({.not_after = noon})), "");
        EXPECT_EQ(run(made({.not_after = noon + 1h})), "");
        today = noon + 1s;
        poll_until([&] { return target.images() == 1; });
        EXPECT_EQ(target.images(), 1u) << "the other stays";
        const metric_snapshot numbers = metrics_of(at_target).snapshot();
        EXPECT_EQ(numbers.value("amalgam_inject_images"), 1);
        EXPECT_EQ(numbers.value("amalgam_inject_runs_total"), 2);
        today = noon + 2h;
        poll_until([&] { return target.images() == 0; });
        EXPECT_EQ(target.images(), 0u);
    }
}

TEST_F(manifest_test, an_image_runs_only_where_its_audience_is) {
    const std::string lab = own.with("lab"), node = own.with("node7");
    make_key(lab, {.name = "lab", .authority = true});
    make_key(node, {.name = "node7", .hosts = {"127.0.0.1"}, .groups = {"compute"}});
    sign_key(node, lab);
    const struct {
        std::vector<std::string> names, groups;
        bool fits;
    } cases[] = {{{"node7"}, {}, true},          {{"node8", "node7"}, {}, true},
                 {{"node8"}, {"compute"}, true}, {{"compute"}, {}, false},
                 {{}, {"node7"}, false},         {{"node8"}, {}, false}};
    injection_options options = judged();
    options.trust = credentials::from_folder(node);
    {
        const injection_target target(at_target, options);
        for (const auto& [names, groups, fits] : cases) {
            const std::string why = run(made({.names = names, .groups = groups}));
            EXPECT_EQ(why.empty(), fits) << why;
        }
        EXPECT_EQ(run(made({.names = {"node8"}})),
                  "the image adder may not run here: it is for node8, and this target is node7 "
                  "(groups: compute)");
    }
    options.trust = nullptr;
    const injection_target nobody(at_target, options);
    EXPECT_TRUE(
        contains(run(made({.names = {"node7"}})), "it is for node7, and this target has no name"));
    EXPECT_EQ(run(made({})), "");
}

TEST_F(manifest_test, a_version_below_one_that_was_accepted_is_refused_also_if_it_was_there) {
    for (const handler run_by : {handler::ult, handler::inline_}) {
        injection_options options = judged();
        options.run = run_by;
        const injection_target target(at_target, options);
        const code_image three = made({.version = 3}), four = made({.version = 4});
        const code_image other = compiled("other", "MAIN(other) {}").signed_by(key);
        for (const code_image& each : {three, other, four, four})
            EXPECT_EQ(run(each), "");
        EXPECT_EQ(target.images(), 2u) << "version 3 has gone";
        for (const shipping how : {shipping::once, shipping::always})
            EXPECT_EQ(run(three, how),
                      "the image adder may not run here: it is version 3, and version 4 has been "
                      "accepted here");
        EXPECT_EQ(run(other), "");
    }
}

TEST_F(manifest_test, a_version_that_cannot_be_linked_or_is_not_trusted_refuses_nobody) {
    injection_options options = judged();
    options.allows.unsigned_too = true;
    const injection_target target(at_target, options);
    const code_image broken = compiled("adder",
                                       "extern \"C\" void nobody_has_this();\n"
                                       "MAIN(adder) { nobody_has_this(); }");
    EXPECT_EQ(error_of([&] {
                  (void)inject.add(broken.signed_by(key, {.version = 9})).create(1).call(there);
              }).code(),
              errc::not_found);
    EXPECT_EQ(run(adder().signed_by(signing_key::generate(), {.version = 9})), "");
    EXPECT_EQ(run(made({.version = 3})), "");
}

TEST_F(manifest_test, versions_outlive_the_target_in_a_file_that_a_crash_may_cut) {
    injection_options options = judged();
    options.versions = own.with("versions");
    {
        const injection_target target(at_target, options);
        EXPECT_EQ(run(made({.version = 3})), "");
        EXPECT_EQ(run(made({.version = 5})), "");
    }
    std::ofstream(options.versions, std::ios::app) << "adde";
    {
        const injection_target target(at_target, options);
        EXPECT_TRUE(contains(run(made({.version = 4})), "version 5 has been accepted here"));
        EXPECT_EQ(run(made({.version = 6})), "");
    }
    {
        const injection_target target(at_target, options);
        EXPECT_TRUE(contains(run(made({.version = 5})), "version 6 has been accepted here"));
    }
    std::ofstream(options.versions, std::ios::app) << "adder six\n";
    const error why = error_of([&] { injection_target target(at_target, options); });
    EXPECT_EQ(why.code(), errc::invalid);
    EXPECT_TRUE(contains(why.what(), "\"adder six\" is not the version of an image")) << why.what();
}

TEST_F(manifest_test, a_version_that_cannot_be_kept_does_not_run) {
    injection_options options = judged();
    options.versions = own.with("none/versions");
    const injection_target target(at_target, options);
    EXPECT_TRUE(contains(run(made({.version = 3})), "its version cannot be written to "));
    EXPECT_EQ(run(made({})), "") << "it has no version to keep";
}

TEST_F(manifest_test, what_is_revoked_ends_as_soon_as_the_file_says_so) {
    const std::string list = own.with("revoked");
    std::ofstream(list) << "# nothing so far";
    const injection_target target(at_target, judged({.revoked = list}));
    const code_image other = compiled("other", "MAIN(other) {}").signed_by(key);
    EXPECT_EQ(run(made({})), "");
    EXPECT_EQ(run(other), "");
    image_revocations{.images = {adder().hash()}}.append_to(list);
    poll_until([&] { return target.images() == 1; });
    EXPECT_EQ(run(made({})),
              "the image adder may not run here: it, or its signer, is revoked here");
    EXPECT_EQ(run(other), "");
    std::ofstream(list, std::ios::app) << "key " << to_text(key.signer()) << "   # stolen\n";
    poll_until([&] { return target.images() == 0; });
    EXPECT_FALSE(run(other).empty());
}

TEST_F(manifest_test, a_relative_list_is_the_same_file_after_chdir) {
    std::optional<in_folder> here(own.path());
    std::ofstream("revoked") << "# nothing so far";
    injection_target target(at_target, judged({.revoked = "revoked"}));
    here.reset();
    EXPECT_EQ(run(made({})), "");
    image_revocations{.images = {adder().hash()}}.append_to(own.with("revoked"));
    EXPECT_TRUE(target.reload());
    EXPECT_FALSE(run(made({})).empty());
}

TEST_F(manifest_test, a_list_that_cannot_be_read_changes_nothing) {
    const std::string list = own.with("revoked");
    EXPECT_EQ(error_of([&] { injection_target t(at_target, judged({.revoked = list})); }).code(),
              errc::not_found);
    image_revocations{.images = {adder().hash()}}.append_to(list);
    injection_target target(at_target, judged({.revoked = list}));
    std::ofstream(list) << "image 12\n";
    const auto read = target.reload();
    EXPECT_EQ(read.code(), errc::invalid);
    EXPECT_TRUE(contains(read.sentence(), "\"image 12\" revokes nothing")) << read.sentence();
    EXPECT_FALSE(run(made({})).empty());
    std::remove(list.c_str());
    EXPECT_EQ(target.reload().code(), errc::not_found);
    EXPECT_FALSE(run(made({})).empty());
    EXPECT_THROW(target.set_policy({.revoked = list}), error);
    EXPECT_FALSE(run(made({})).empty());
    std::ofstream(list) << "";
    EXPECT_TRUE(target.reload());
    EXPECT_EQ(run(made({})), "");
}

TEST(image_judge, a_list_that_no_descriptor_was_left_for_is_read_when_one_is) {
    const temp_folder own;
    const std::string list = own.with("revoked", "# nothing so far\n");
    const injection_options options{.allows = {.revoked = list}};
    detail::image_judge judge(options);
    image_revocations{.keys = {signing_key::generate().signer()}}.append_to(list);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool then = judge.look_at_list();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_FALSE(then);
    EXPECT_TRUE(judge.look_at_list());
    EXPECT_EQ(judge.now().revoked->keys.size(), 1u);
    EXPECT_FALSE(judge.look_at_list()) << "it is the same";
}

TEST_F(manifest_test, files_that_decide_what_runs_are_files_that_not_everybody_may_write) {
    const std::string list = own.with("revoked"), folder = own.with("open");
    const auto refused = [&](const std::string& path, errc code, const std::string& sentence) {
        injection_options by_list = judged({.revoked = path}), by_file = judged();
        by_file.versions = path;
        for (const injection_options& each : {by_list, by_file}) {
            const error why = error_of([&] { injection_target t(at_target, each); });
            EXPECT_EQ(why.code(), code);
            EXPECT_TRUE(contains(why.what(), sentence)) << why.what();
        }
    };
    refused(own.with(""), errc::invalid, " is not a file");
    ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
    refused(list, errc::invalid, list + " is not a file");
    std::remove(list.c_str());
    std::ofstream(list) << "";
    {
        injection_target target(at_target, judged({.revoked = list}));
        ::chmod(list.c_str(), 0666);
        refused(list, errc::denied, list + " can be written by everybody on this host (mode 0666)");
        EXPECT_EQ(target.reload().code(), errc::denied);
    }
    ASSERT_TRUE(::mkdir(folder.c_str(), 0700) == 0 && ::chmod(folder.c_str(), 0777) == 0);
    refused(folder + "/new", errc::denied, folder + "/ can be written by everybody on this host");
    ::chmod(folder.c_str(), 01777);
    std::ofstream(folder + "/new") << "";
    const injection_target target(at_target, judged({.revoked = folder + "/new"}));
}

TEST_F(manifest_test, a_clock_that_throws_anything_lets_nothing_run_and_ends_nothing) {
    std::atomic<bool> throws{false};
    injection_options options = judged();
    options.time_of_day = [&]() -> std::chrono::system_clock::time_point {
        if (throws) throw 42;
        return noon;
    };
    const injection_target target(at_target, options);
    EXPECT_EQ(run(made({.not_after = noon})), "");
    throws = true;
    EXPECT_TRUE(contains(run(made({.version = 1})), "injection_options::time_of_day failed"));
    throws = false;
    EXPECT_EQ(run(made({.version = 1})), "");
}

TEST_F(manifest_test, code_that_is_revoked_while_it_is_loaded_does_not_stay) {
    static injection_target* judging = nullptr;
    static std::atomic<bool> changes;
    changes = true;
    injection_options options = judged();
    options.max_images = 1;
    options.exports["gone_for_test"] = reinterpret_cast<void*>(+[] {
        if (changes.exchange(false)) judging->set_policy({});
    });
    injection_target target(at_target, options);
    judging = &target;
    // Its end is the last that happens while the next one is loaded.
    EXPECT_EQ(run(compiled("ends",
                           "extern \"C\" void gone_for_test();\n"
                           "struct tells { ~tells() { gone_for_test(); } };\nstatic tells last;\n"
                           "MAIN(ends) {}")
                      .signed_by(key)),
              "");
    EXPECT_EQ(run(made({}), shipping::always), "") << "it was accepted before";
    EXPECT_FALSE(changes);
    EXPECT_TRUE(contains(run(made({}), shipping::always), "its signer is not trusted here"));
}

TEST_F(manifest_test, an_inline_handler_does_not_go_on_with_what_may_not_run_any_more) {
    injection_options options = judged();
    options.run = handler::inline_;
    injection_target target(at_target, options);
    const counter& refused = at_target.counters().get("inject.refused");
    for (const shipping how : {shipping::once, shipping::always}) {
        target.set_policy({.trusted = {key.signer()}});
        const injection message = inject.add(made({})).create(as_bytes_of(ones), how);
        const std::uint64_t runs = target.runs(), before = refused.value();
        EXPECT_NO_THROW((void)message.call(there));
        message.post(there);
        poll_until([&] { return target.runs() == runs + 2; });
        EXPECT_EQ(target.runs(), runs + 2);
        target.set_policy({});
        message.post(there);
        poll_until([&] { return refused.value() > before; });
        EXPECT_EQ(target.runs(), runs + 2);
    }
}

TEST_F(manifest_test, code_runs_only_for_who_may_by_each_way_and_by_each_policy) {
    const allow_list me{.uids = {own_process().uid}}, others{.uids = {own_process().uid + 1}};
    for (const handler run_by : {handler::ult, handler::inline_}) {
        injection_options options = judged();
        options.run = run_by;
        injection_target target(at_target, options);
        std::uint64_t runs = 0;
        const auto becomes = [&](injection_policy allows, bool may) {
            allows.trusted = {key.signer()};
            target.set_policy(allows);
            for (const shipping how : {shipping::once, shipping::always}) {
                const injection message = inject.add(made({})).create(as_bytes_of(ones), how);
                const std::uint64_t refused = at_target.counters().get("inject.refused").value();
                message.post(there);
                const std::string why = run(made({}), how);
                EXPECT_EQ(why.empty(), may) << why;
                if (may) runs += 2;
                poll_until([&] {
                    return target.runs() >= runs &&
                           (may ||
                            at_target.counters().get("inject.refused").value() >= refused + 2);
                });
                EXPECT_EQ(target.runs(), runs);
            }
        };
        becomes({.callers = me}, true);
        becomes({.callers = others}, false);
        becomes({.callers = allow_list{}}, false);
        becomes({.callers = me, .callers_of = {{"adder", others}}}, false);
        becomes({.callers_of = {{"adder", me}, {"other", others}}}, true);
        becomes({.callers = others, .callers_of = {{"adder", me}}}, false);
        becomes({}, true);
    }
}

TEST_F(manifest_test, nothing_of_an_image_runs_for_who_may_not_run_it) {
    static std::atomic<int> begun{0};
    begun = 0;
    injection_options options = judged({.callers_of = {{"begins", allow_list{}}}});
    options.exports["begun_for_test"] = reinterpret_cast<void*>(+[] { ++begun; });
    const injection_target target(at_target, options);
    const code_image begins =
        compiled("begins",
                 "extern \"C\" void begun_for_test();\n"
                 "struct says { says() { begun_for_test(); } };\nstatic says first;\n"
                 "MAIN(begins) {}")
            .signed_by(key);
    const auto bring = at_source.procedure<detail::at_target::bring>(detail::at_target::bring_name);
    EXPECT_EQ(bring.on(there)(begins.bytes()).code, errc::denied);
    EXPECT_FALSE(run(begins).empty());
    EXPECT_EQ(begun, 0);
    EXPECT_EQ(target.images(), 0u);
    // The engine itself may.
    injector at_home(at_target);
    EXPECT_EQ(run(at_home, at_target.lookup(at_target.address()), begins), "");
}

TEST_F(manifest_test, a_ring_has_no_caller_and_so_is_refused_where_callers_are_listed) {
    injection_target target(at_target, judged());
    injection_ring ring(target, 1 << 16);
    at_target.define("ring", [&] { return ring.memory(); });
    injection_ring_writer writer(at_source.procedure<bulk()>("ring").on(there)());
    const injection message = inject.add(made({})).create(as_bytes_of(ones));
    writer.post(message);
    EXPECT_EQ(ring.poll(), 1u);
    EXPECT_EQ(target.runs(), 1u);
    injection_policy listed{.callers = allow_list{.uids = {own_process().uid}}};
    listed.trusted = {key.signer()};
    target.set_policy(listed);
    writer.post(message);
    EXPECT_EQ(ring.poll(), 1u);
    EXPECT_EQ(target.runs(), 1u);
}

}  // namespace
}  // namespace amalgam
