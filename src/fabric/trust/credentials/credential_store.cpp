#include "fabric/trust/credentials/credential_store.hpp"

#include <atomic>
#include <exception>
#include <new>
#include <optional>
#include <utility>

#include <amalgam/core/detail/absolute_path.hpp>
#include <amalgam/core/detail/file_stamp.hpp>
#include <amalgam/core/detail/memory.hpp>
#include <amalgam/core/limited_log.hpp>

#include "fabric/limits.hpp"
#include "fabric/trust/credentials/file_watch.hpp"
#include "fabric/trust/credentials/parsing_turn.hpp"
#include "fabric/trust/keys/new_file.hpp"

namespace amalgam::detail {

namespace {

constexpr std::string credential_parts::*paths_of_files[] = {
    &credential_parts::certificate,  &credential_parts::key,
    &credential_parts::authority,    &credential_parts::revoked,
    &credential_parts::trusted_list, &credential_parts::shared_keys};

/// So that they name the same files after chdir().
result<void> make_absolute(credential_parts& paths) {
    for (const auto each : paths_of_files) {
        auto whole = absolute_path(paths.*each);
        if (!whole) return whole.why();
        paths.*each = std::move(whole).value();
    }
    return {};
}

}  // namespace

/// What the thread has in common with the store, which it may outlive while a file system does not
/// answer. What is OpenSSL's ends with the store.
class credential_store::shared : public std::enable_shared_from_this<shared> {
public:
    shared(credential_parts paths, bool optional_list)
        : paths_(std::move(paths)), optional_list_(optional_list) {}

    std::shared_ptr<const loaded_credentials> in_force() const {
        const std::lock_guard hold(stores_lock());
        return in_force_;
    }
    result<void> reload(wall_time now);
    void look() noexcept;
    void watch(steady::time_point now);
    void tell(steady::time_point now);
    void close() noexcept;

private:
    struct reading {
        std::uint64_t number;  ///< In the order in which they begin.
        bool is_repeated;      ///< By stamps that were seen before: may find what is in force.
        bool optional_list;
    };
    /// What is logged by the next one who asks what is in force: not by the thread, so that it
    /// holds no lock of the log's when the process forks.
    struct news {
        std::string refused{};
        std::string taken{};
    };

    reread_files::stamps stamps() const;
    reading begin(reread_files::stamps now);
    void look_at_files();
    /// True: something is in force now that was not, or not known to be.
    result<bool> read(const reading& which, wall_time now);
    result<bool> take(const reading& which, const credential_parts& paths, credential_texts read,
                      wall_time now);
    /// Under stores_lock().
    bool is_watched() const noexcept { return watch_ && !watch_->is_of_parent(); }

    const credential_parts paths_;

    // What follows is guarded by stores_lock().
    bool optional_list_ = false;  // Not seen so far.
    reread_files files_;
    std::uint64_t begun_ = 0, taken_ = 0;  // Numbers of readings.
    steady::time_point looked_{};
    std::shared_ptr<const loaded_credentials> in_force_;
    std::optional<file_watch> watch_;
    // Without the secret, while the files may still change under the same stamps. Then null.
    std::shared_ptr<const credential_texts> texts_;
    news news_;
    std::string refused_;  // Why the last reading of the thread was; empty: it was not.
    bool closed_ = false;

    std::atomic<steady::rep> asked_{0};  // The file system, when; 0: it has answered, or was told.
};

reread_files::stamps credential_store::shared::stamps() const {
    reread_files::stamps all;
    for (const auto each : paths_of_files)
        all.push_back((paths_.*each).empty() ? file_stamp{} : file_stamp::of(paths_.*each));
    return all;
}

/// Under stores_lock().
credential_store::shared::reading credential_store::shared::begin(reread_files::stamps now) {
    const bool is_repeated = !files_.have_changed(now);
    files_.begin(std::move(now));
    return {++begun_, is_repeated, optional_list_};
}

result<void> credential_store::shared::reload(wall_time now) {
    reread_files::stamps there = stamps();
    std::unique_lock hold(stores_lock());
    looked_ = steady::now();
    reading which = begin(std::move(there));
    hold.unlock();
    which.is_repeated = false;  // Sessions begun before end, as is said.
    const auto done = read(which, now);
    return done ? result<void>() : done.why();
}

result<bool> credential_store::shared::read(const reading& which, wall_time now) {
    // Without a list that may be absent and is. A link to nothing is none that is absent: what it
    // leads to may not be mounted yet.
    credential_parts paths = paths_;
    if (which.optional_list && !is_there(paths.revoked)) paths.revoked.clear();
    auto texts = credential_texts::in_files(paths);
    if (!texts) return texts.why();
    return take(which, paths, std::move(*texts), now);
}

result<bool> credential_store::shared::take(const reading& which, const credential_parts& paths,
                                            credential_texts read, wall_time now) {
    const parsing_turn turn;  // Until what was replaced is gone, too.
    std::unique_lock hold(stores_lock());
    // Of a file system that answers late: a later reading has replaced it.
    if (closed_ || turn.process_ends() || which.number < taken_) return false;
    const std::shared_ptr<const loaded_credentials> before = in_force_;
    const std::shared_ptr<const credential_texts> texts_before = texts_;
    hold.unlock();
    auto loaded = loaded_credentials::from_texts(read, paths, before.get(), now);
    if (!loaded) return loaded.why();
    if (before != nullptr)
        if (const auto good = (*loaded)->check_follows(*before); !good) return good.why();
    // In this case sessions go on.
    const bool is_same = which.is_repeated && texts_before != nullptr &&
                         texts_before->are_as(read) && (*loaded)->has_secret_of(*before);
    read.secret.reset();
    auto texts = std::make_shared<const credential_texts>(std::move(read));
    hold.lock();
    taken_ = which.number;
    if (!paths.revoked.empty()) optional_list_ = false;
    if (!is_same) in_force_ = std::move(*loaded);
    if (which.number == begun_) files_.were_read();
    if (files_.are_settled()) texts.reset();
    texts_.swap(texts);
    news_.refused.clear();
    const bool was_refused = !std::exchange(refused_, {}).empty();
    hold.unlock();
    return !is_same || was_refused;
}

void credential_store::shared::look() noexcept {
    asked_ = steady::now().time_since_epoch().count();
    try {
        look_at_files();
    } catch (const std::exception&) {
        // Out of memory. They are read the next time.
    }
    asked_ = 0;
}

void credential_store::shared::look_at_files() {
    reread_files::stamps there = stamps();
    std::optional<reading> which;
    {
        const parsing_turn turn;
        const std::lock_guard hold(stores_lock());
        looked_ = steady::now();
        if (!closed_ && files_.must_be_read(there)) which = begin(std::move(there));
    }
    if (!which) return;
    const auto done = read(*which, std::chrono::system_clock::now());
    const parsing_turn turn;
    const std::lock_guard hold(stores_lock());
    if (closed_) return;
    if (done) {
        if (*done) news_.taken = to_text(in_force_->self());
    } else if (which->number > taken_ && (!which->is_repeated || done.sentence() != refused_)) {
        news_.refused = done.sentence();
        refused_ = done.sentence();
    }
}

/// Sees to it that a thread of this process looks at the files.
void credential_store::shared::watch(steady::time_point now) {
    std::unique_lock before(stores_lock());
    if (is_watched()) return;
    const bool is_due = now - looked_ >= limits::credentials_interval;
    before.unlock();
    if (is_due) look();
    try {
        const std::lock_guard hold(stores_lock());
        if (!is_watched()) watch_.emplace([all = shared_from_this()] { all->look(); });
    } catch (const std::exception& why) {
        limited_log(log_level::warn, "trust",
                    "no thread can look at credentials; who makes progress does",
                    {{"why", why.what()}});
    }
}

void credential_store::shared::tell(steady::time_point now) {
    std::unique_lock hold(stores_lock());
    const news what = std::exchange(news_, {});
    hold.unlock();
    // In this order they came: what is taken clears what was refused before.
    if (!what.taken.empty())
        log(log_level::info, "trust", "credentials read again", {{"as", what.taken}});
    if (!what.refused.empty())
        log(log_level::warn, "trust", "credentials have changed and cannot be used; the old stay",
            {{"why", what.refused}});
    steady::rep since = asked_;
    if (since != 0 && now - steady::time_point(steady::duration(since)) >= longest_look &&
        asked_.compare_exchange_strong(since, 0))
        log(log_level::warn, "trust",
            "the file system of credentials does not answer; those in force stay until it does",
            {{"file", paths_.certificate.empty() ? paths_.shared_keys : paths_.certificate}});
}

void credential_store::shared::close() noexcept {
    const parsing_turn turn;
    std::shared_ptr<const loaded_credentials> last;
    const std::lock_guard hold(stores_lock());
    closed_ = true;
    watch_.reset();
    last.swap(in_force_);
}

credential_store::credential_store(std::shared_ptr<shared> all) noexcept
    : shared_(std::move(all)) {}
credential_store::credential_store(std::shared_ptr<const loaded_credentials> from_text) noexcept
    : from_text_(std::move(from_text)) {}
credential_store::~credential_store() {
    if (shared_ != nullptr) shared_->close();
}

credential_store::opened credential_store::of_files(credential_parts paths, bool optional_list) {
    if (const auto good = loaded_credentials::check_parts(paths); !good) return good.why();
    if (const auto good = make_absolute(paths); !good) return good.why();
    auto all = std::make_shared<shared>(std::move(paths), optional_list);
    std::unique_ptr<credential_store> made(new credential_store(std::move(all)));
    if (const auto read = made->reload(); !read) return read.why();
    parsing_turn::prepare();
    return made;
}

credential_store::opened credential_store::of_text(const credential_parts& pem) {
    auto loaded = loaded_credentials::from_text(pem);
    if (!loaded) return loaded.why();
    return std::unique_ptr<credential_store>(new credential_store(std::move(*loaded)));
}

std::shared_ptr<const loaded_credentials> credential_store::current(steady::time_point now) {
    if (shared_ == nullptr) return from_text_;
    shared_->watch(now);
    shared_->tell(now);
    return shared_->in_force();
}

std::shared_ptr<const loaded_credentials> credential_store::in_force() const {
    return shared_ == nullptr ? from_text_ : shared_->in_force();
}

result<void> credential_store::reload(wall_time now) {
    if (shared_ == nullptr) return {};
    return shared_->reload(now);
}

void credential_store::look() {
    if (shared_ != nullptr) shared_->look();
}

}  // namespace amalgam::detail
