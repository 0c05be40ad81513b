/* Records go into a store elsewhere, packed on their way by a codec that the store has never heard
 * of: it travels with them. `inject_codec [URI [FILE]]`: the lines of a file, or made up ones. */
#include <poll.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <amalgam/ifunc.h>

static int check(int got, const char* what) {
    if (got >= 0) return got;
    fprintf(stderr, "inject_codec: %s: %s\n", what, amalgam_ifunc_error());
    exit(1);
}

/* What injected code may call at the store. */
int store_record(void* store, const char* text, size_t bytes) {
    sqlite3_stmt* const insert = store;
    int stored;
    sqlite3_bind_text(insert, 1, text, (int)bytes, SQLITE_TRANSIENT);
    stored = sqlite3_step(insert) == SQLITE_DONE;
    sqlite3_reset(insert);
    return stored ? 0 : 1;
}

/* Runs what has come, and makes progress; how many ran. Sleeps while there is nothing to do. */
static int wait_and_poll(amalgam_ifunc_context_t* context, void* target_args) {
    struct pollfd until = {amalgam_ifunc_event_fd(context), POLLIN, 0};
    (void)poll(&until, 1, 100);
    return check(amalgam_poll_ifunc(context, target_args), "poll");
}

static long count(sqlite3* database, const char* query) {
    sqlite3_stmt* statement = NULL;
    long found = -1;
    sqlite3_prepare_v2(database, query, -1, &statement, NULL);
    if (sqlite3_step(statement) == SQLITE_ROW) found = (long)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return found;
}

/* The target: polls until one message has run, or the source is gone. */
static void keep_records(amalgam_ifunc_context_t* context) {
    const pid_t source = getppid();
    sqlite3* database = NULL;
    sqlite3_stmt* insert = NULL;
    int ran = 0;
    sqlite3_open(":memory:", &database);
    sqlite3_exec(database, "CREATE TABLE records (text TEXT); BEGIN", NULL, NULL, NULL);
    sqlite3_prepare_v2(database, "INSERT INTO records VALUES (?)", -1, &insert, NULL);
    check(amalgam_ifunc_trust(context, NULL), "trust"); /* Both processes are ours. */
    check(amalgam_ifunc_export(context, "store_record", (void*)&store_record), "export");
    while (ran == 0 && getppid() == source)
        ran = wait_and_poll(context, insert);
    if (ran != 0)
        printf("%ld records stored, %ld with \"says 7\"\n",
               count(database, "SELECT count(*) FROM records"),
               count(database, "SELECT count(*) FROM records WHERE instr(text, 'says 7')"));
    sqlite3_finalize(insert);
    sqlite3_close(database);
}

/* The source: sends all records in one message, and makes progress until the target has them. */
static void send_records(amalgam_ifunc_context_t* context, const char* target, const char* records,
                         size_t bytes, pid_t until) {
    amalgam_ifunc_ep_t* ep = NULL;
    amalgam_ifunc_t* codec = NULL;
    amalgam_ifunc_msg_t* message = NULL;
    size_t packed = 0;
    check(amalgam_ifunc_ep_create(context, target, &ep), target);
    check(amalgam_register_ifunc(context, "codec", &codec), "codec");
    check(amalgam_ifunc_msg_create(codec, records, bytes, &message), "a message");
    (void)amalgam_ifunc_msg_payload(message, &packed);
    printf("%zu bytes of records travel as %zu\n", bytes, packed);
    fflush(stdout);
    check(amalgam_ifunc_msg_send_nbix(ep, message), "sending");
    while (waitpid(until, NULL, WNOHANG) == 0)
        wait_and_poll(context, NULL);
    amalgam_ifunc_msg_free(message);
    amalgam_deregister_ifunc(context, codec);
    amalgam_ifunc_ep_destroy(ep);
}

static char* made_up_records(size_t* bytes) {
    const int records = 100000;
    char* const all = malloc((size_t)records * 32);
    char* at = all;
    int i;
    for (i = 0; all != NULL && i < records; ++i)
        at += sprintf(at, "sensor %d says %d\n", i % 97, i * 7 % 1000);
    *bytes = (size_t)(at - all);
    return all;
}

static char* read_file(const char* path, size_t* bytes) {
    FILE* const file = fopen(path, "rb");
    char* all = NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr,
                "inject_codec: \"%s\" cannot be read; example: inject_codec shm:// README.md\n",
                path);
        exit(2);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    all = malloc(*bytes + 1);
    *bytes = all != NULL ? fread(all, 1, *bytes, file) : 0;
    fclose(file);
    return all;
}

int main(int argc, char** argv) {
    const char* const uri = argc > 1 ? argv[1] : "shm://";
    size_t bytes = 0;
    char* const records = argc > 2 ? read_file(argv[2], &bytes) : made_up_records(&bytes);
    amalgam_ifunc_context_t* context = NULL;
    char address[256] = "";
    int from_target[2];
    pid_t target;
    if (records == NULL || pipe(from_target) != 0) return 1;
    target = fork();
    if (target < 0) return 1;
    close(from_target[target == 0 ? 0 : 1]);
    if (target != 0 && read(from_target[0], address, sizeof(address) - 1) <= 0) {
        waitpid(target, NULL, 0); /* It has said why. */
        return 1;
    }
    check(amalgam_ifunc_open(uri, &context), uri);
    if (target == 0) {
        const char* const mine = amalgam_ifunc_address(context);
        if (*mine == 0)
            fprintf(stderr, "inject_codec: %s does not listen; example: inject_codec shm://\n",
                    uri);
        if (write(from_target[1], mine, strlen(mine)) > 0) keep_records(context);
    } else {
        send_records(context, address, records, bytes, target);
    }
    amalgam_ifunc_close(context);
    free(records);
    return 0;
}
