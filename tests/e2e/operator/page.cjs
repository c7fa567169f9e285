// The dashboard in a real browser: `node page.cjs CASE`, run by page.rs, which starts the program.
'use strict';
const { chromium } = require('playwright-core');
const axe = require('axe-core');
const assert = require('node:assert/strict');
const http = require('node:http');
const { pipeline } = require('node:stream');
const { execFileSync } = require('node:child_process');
const { env } = process;
const URL_ = env.PAGE_URL;
const QUEUE = 'local:default';
const DEAD = 'local:default.dead';
const PAGES = ['/ui', `/ui/queue?name=${encodeURIComponent(QUEUE)}`, '/ui/running', '/ui/schedules',
  `/ui/schedules?queue=${encodeURIComponent(QUEUE)}`, '/ui/dead-letters',
  `/ui/dead-letters?queue=${encodeURIComponent(QUEUE)}`, '/ui/plugins', '/ui/processes', '/ui/doctor', '/ui/sign-in'];

let browser;
const send = (queue, body, ...more) =>
  execFileSync(env.DISPATCHER, ['send', queue, body, '--data', env.DATA, ...more], { stdio: 'pipe' });

// A tab; whatever it logs as an error, what the content security policy refuses included, fails the case.
const errors = [];
async function tab(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(30_000);
  const page = await context.newPage();
  page.on('pageerror', (error) => errors.push(`${page.url()}: ${error.message}`));
  page.on('console', (message) => {
    const isAnswer = message.text().startsWith('Failed to load resource')
      || message.text().includes('htmx:error: Failed to fetch');
    if (message.type() === 'error' && !isAnswer) errors.push(`${page.url()}: ${message.text()}`);
  });
  page.on('response', (answer) => {
    if (answer.url().includes('/ui/assets/') && answer.status() !== 200) errors.push(`${answer.status()} ${answer.url()}`);
  });
  page.on('dialog', (dialog) => { errors.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  return page;
}

async function signIn(page, token = 'operator', base = URL_) {
  await page.goto(`${base}/ui`);
  await page.getByLabel('Token').fill(token);
  await page.getByLabel('Your name').fill('Ann');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor({ state: 'attached' });
}

async function signedIn(options, token) {
  const page = await tab(options);
  await signIn(page, token);
  return page;
}

const queuePage = (name = QUEUE) => `${URL_}/ui/queue?name=${encodeURIComponent(name)}`;
// Presses the button of a dialog, and waits until its action was answered.
const sent = (page, button) => Promise.all([
  page.waitForResponse((answer) => answer.url().includes('/ui/act/')),
  button.click(),
]);
// Pauses or resumes a queue or a route from a page, and waits for the answer of this action, not of the one
// before it: a context that is closed while its page leaves for the next one may never end.
const switched = async (page, verb, target) => {
  await page.getByRole('link', { name: verb }).click();
  await page.locator('dialog[open]').getByRole('button', { name: verb }).click();
  await page.getByRole('status').getByText(`${target} is ${verb.toLowerCase()}`).waitFor();
};
const following = (page) => page.waitForSelector('html[data-live="on"]');

async function violations(page) {
  await page.evaluate(axe.source);
  const found = await page.evaluate(() => axe.run());
  const serious = found.violations.filter((one) => ['serious', 'critical'].includes(one.impact));
  return serious.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).slice(0, 3).join(' ')}`);
}

// Sends what fills pages, and does what makes a job. The addresses of these pages and of confirmations.
async function filled() {
  const page = await signedIn();
  const reason = 'card <declined> & "more"';
  send(QUEUE, 'sleep:600000');
  send(QUEUE, `reject:${reason}`, '--count', '2');
  await page.goto(`${URL_}/ui/running`);
  const attempt = await page.locator('#attempts tbody a').first().getAttribute('href');
  const letters = `/ui/dead-letters?queue=${encodeURIComponent(DEAD)}`;
  do await page.goto(URL_ + letters);
  while ((await page.locator('#letters tbody tr').count()) !== 2);
  const message = await page.locator('#letters tbody a').first().getAttribute('href');
  const withReason = await page.locator('section:has(#reasons-title) tbody a').first().getAttribute('href');
  await page.goto(URL_ + withReason);
  assert.equal(await page.locator('#letters tbody tr').count(), 2, 'the link of a reason leads to its messages');
  await page.goto(`${URL_}/ui/confirm/purge?target=${encodeURIComponent(QUEUE)}`);
  await page.getByText('0 messages are removed.').waitFor();
  await page.getByRole('button', { name: 'Purge' }).click();
  await page.getByText('Done: 0 messages').waitFor();
  const job = page.url().replace(URL_, '');
  const id = new URL(URL_ + message).searchParams.get('id');
  const confirm = (action, target, part = '') =>
    `/ui/confirm/${action}?${new URLSearchParams({ target, part })}`;
  await page.goto(URL_ + confirm('redrive', DEAD, reason));
  await page.getByText('2 messages with this reason are').waitFor();
  await page.context().close();
  return [attempt, letters, withReason, message, job,
    confirm('pause-queue', QUEUE), confirm('limit-queue', QUEUE), confirm('cancel-message', QUEUE),
    confirm('pause-route', 'verdicts'), confirm('cancel-attempt', new URL(URL_ + attempt).searchParams.get('id')),
    confirm('redrive', DEAD, reason), confirm('purge', DEAD), confirm('edit-message', DEAD, id),
    confirm('delete-message', DEAD, id), confirm('drain', '')];
}

// Pages that say what is wrong.
const WRONG = ['/ui/queue?name=none', '/ui/confirm/none', '/ui/act/purge', '/ui/none'];

// Whether these pages are accessible: in both themes, at a desk and on a phone.
async function areAccessible(pages, signed = true) {
  for (const colorScheme of ['light', 'dark']) {
    for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 740 }]) {
      const page = signed ? await signedIn({ colorScheme, viewport }) : await tab({ colorScheme, viewport });
      for (const address of pages) {
        await page.goto(URL_ + address);
        assert.deepEqual(await violations(page), [], `${address} ${colorScheme} ${viewport.width}`);
      }
      await page.context().close();
    }
  }
}

const CASES = {
  // Pages of SQS: what a look asks, and what it found.
  async accessible_on_sqs() {
    const letters = `/ui/dead-letters?queue=${env.DEAD}`;
    await areAccessible(['/ui', letters, `/ui/confirm/look?target=${env.DEAD}`]);
    const page = await signedIn();
    await page.goto(URL_ + letters);
    await page.getByText('5 messages wait here now.').waitFor();
    await page.getByRole('link', { name: 'Look at the messages' }).click();
    await page.locator('dialog[open]').getByRole('button', { name: 'Look' }).click();
    await page.locator('#letters summary').first().click();
    await page.locator('#letters pre').first().getByText('print:').waitFor();
    assert.equal(await page.locator('a[href*="/ui/message"]').count(), 0);
    assert.deepEqual(await violations(page), []);
  },

  // A plugin with a canary and a shadow.
  async accessible_trials() {
    await areAccessible(['/ui/plugins', '/ui/confirm/roll-back?target=hello', '/ui/confirm/reload-plugins']);
  },

  async accessible() {
    await areAccessible(WRONG);
    const pages = [...PAGES, ...await filled()];
    for (const colorScheme of ['light', 'dark']) {
      for (const viewport of [{ width: 1280, height: 800 }, { width: 360, height: 740 }]) {
        const page = await signedIn({ colorScheme, viewport });
        for (const address of pages) {
          const answer = await page.goto(URL_ + address);
          assert.equal(answer.status(), 200, address);
          assert.deepEqual(await violations(page), [], `${address} ${colorScheme} ${viewport.width}`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(wide <= 0, `${address} is ${wide} px wider than a screen of ${viewport.width}`);
        }
        const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        const bright = Number(background.match(/\d+/)[0]) > 128;
        assert.equal(bright, colorScheme === 'light', background);
        await page.goto(queuePage());
        await page.getByRole('link', { name: 'Pause' }).click();
        await page.locator('dialog[open]').waitFor();
        assert.deepEqual(await violations(page), [], `the dialog, ${colorScheme}`);
        await page.context().close();
      }
    }
    const page = await signedIn({ colorScheme: 'light' });
    await page.getByRole('button', { name: 'Dark' }).click();
    await page.goto(`${URL_}/ui/running`);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  },

  async live() {
    const page = await signedIn();
    await page.goto(queuePage());
    await following(page);
    await page.evaluate(() => { window.same = true; });
    const done = page.locator('#state-of-queue dt:text-is("Done") + dd');
    assert.equal(await done.textContent(), '0');
    send(QUEUE, 'print:x', '--count', '1234');
    await page.waitForFunction((at) => document.querySelector(at)?.textContent === '1,234',
      '#state-of-queue section:nth-child(2) dd:nth-of-type(2)');
    await page.waitForSelector('.chart canvas');
    send(QUEUE, 'reject:seen live');
    await page.getByText('seen live').waitFor();
    assert.ok(await page.evaluate(() => window.same), 'the page was not loaded again');
    // A chart whose points do not come is drawn later, and without an error.
    await page.route('**/ui/points?*', (route) => route.abort(), { times: 1 });
    await page.reload();
    await page.waitForSelector('.chart canvas');
    await page.goto(`${URL_}/ui`);
    await following(page);
    send(QUEUE, 'sleep:600000');
    await page.waitForFunction(() => /Running\s*1\s*of/.test(document.getElementById('figures').textContent));
    await page.goto(`${URL_}/ui/running`);
    await following(page);
    const lease = page.locator('#attempts td').nth(5);
    const first = await lease.textContent();
    await page.waitForFunction((first) => document.querySelectorAll('#attempts td')[5].textContent !== first, first);
    // What another operator does is shown, and the buttons are those of what is now.
    const other = await signedIn();
    const isPaused = async (address, verb, target) => {
      await page.goto(URL_ + address);
      await following(page);
      await other.goto(URL_ + address);
      await switched(other, verb, target);
      const next = verb === 'Pause' ? 'Resume' : 'Pause';
      await page.getByRole('link', { name: next }).click();
      await page.locator('dialog[open]').getByRole('button', { name: next }).waitFor();
    };
    const queue = queuePage().replace(URL_, '');
    for (const verb of ['Pause', 'Resume']) await isPaused(queue, verb, QUEUE);
    for (const verb of ['Pause', 'Resume']) await isPaused('/ui', verb, 'verdicts');
    await page.goto(`${URL_}/ui/dead-letters?queue=${encodeURIComponent(DEAD)}`);
    await page.getByText('1 message waits here now.').waitFor();
    await following(page);
    send(QUEUE, 'reject:seen later');
    await page.getByText('2 messages wait here now.').waitFor();
    await page.getByRole('link', { name: 'Show them' }).click();
    await page.getByText('seen later').first().waitFor();
    await other.context().close();
    await page.goto(`${URL_}/ui/running`);
    await following(page);
    // The session ends: the next stream is refused, and the page says why.
    const cookies = await page.context().cookies();
    await page.context().clearCookies();
    const again = () => ['pagehide', 'pageshow'].forEach((name) => dispatchEvent(new Event(name)));
    await page.evaluate(again);
    await page.getByText('Your session has ended. Reload this page to sign in.').waitFor();
    await page.context().addCookies(cookies);
    await page.evaluate(again);
    await page.waitForFunction(() => document.getElementById('connection').textContent === '');
    // The program ends: the page says so and keeps its numbers.
    process.kill(Number(env.PROGRAM), 'SIGKILL');
    await page.getByText('Not connected.').waitFor();
    assert.equal(await page.locator('#attempts tbody tr').count(), 1);
  },

  async actions() {
    const page = await signedIn();
    send(QUEUE, 'sleep:600000');
    await page.goto(queuePage());
    await following(page);
    await page.locator('#running tbody tr').waitFor();
    const pause = page.getByRole('link', { name: 'Pause' });
    await pause.focus();
    await page.keyboard.press('Enter');
    const dialog = page.locator('dialog[open]');
    await dialog.getByText('1 message in attempts here are finished').waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.ok(await pause.evaluate((link) => link === document.activeElement), 'the focus returns');
    await pause.click();
    await dialog.getByRole('button', { name: 'Pause' }).click();
    await page.getByText(`${QUEUE} is paused in all processes, within 2 s.`).waitFor();
    await page.getByText('No process receives from').waitFor();
    send(QUEUE, 'print:x', '--count', '3');
    await page.getByText('3 messages wait.').waitFor();
    await page.getByRole('link', { name: 'Resume' }).click();
    await dialog.getByText('3 messages wait in it now.').waitFor();
    await dialog.getByRole('button', { name: 'Resume' }).click();
    await page.getByText(`${QUEUE} is resumed`).waitFor();
    await page.getByRole('link', { name: 'Limits' }).click();
    await dialog.getByLabel('Rate').fill('fast');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await dialog.getByRole('alert').getByText('rate: "fast" cannot be used').waitFor();
    assert.equal(await dialog.getByLabel('Rate').inputValue(), 'fast', 'what was typed stays');
    // Neither a press on the padding nor text selected out to the backdrop closes the dialog.
    const box = await dialog.boundingBox();
    await page.mouse.click(box.x + 4, box.y + 4);
    const field = await dialog.getByLabel('Rate').boundingBox();
    await page.mouse.move(field.x + 40, field.y + 8);
    await page.mouse.down();
    await page.mouse.move(box.x - 20, field.y + 8);
    await page.mouse.up();
    assert.equal(await dialog.getByLabel('Rate').inputValue(), 'fast', 'it is open');
    // A session that ends meanwhile takes nothing either.
    const cookies = await page.context().cookies();
    await page.context().clearCookies();
    await dialog.getByLabel('Rate').fill('2.5');
    await dialog.getByRole('button', { name: 'Change' }).click();
    await dialog.getByRole('link', { name: 'Sign in in a new tab' }).waitFor();
    await page.context().addCookies(cookies);
    await dialog.getByRole('button', { name: 'Change' }).click();
    await page.getByText('2.5 per second').waitFor();
    await page.getByRole('link', { name: 'Limits' }).click();
    await dialog.waitFor();
    await page.mouse.click(box.x - 20, box.y - 20);
    await dialog.waitFor({ state: 'detached' });
    // Where the server cannot be reached a button says so.
    await page.goto(queuePage());
    await page.context().setOffline(true);
    await pause.click();
    await page.locator('#connection').getByText('Not connected; nothing was done.').waitFor();
    await page.context().setOffline(false);
    await pause.click();
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#connection').getByText('nothing was done').count(), 0);
    await page.goto(`${URL_}/ui/running`);
    await page.locator('#attempts tbody a').first().click();
    await page.getByRole('link', { name: 'Cancel' }).click();
    await dialog.getByText('its 1 message of').waitFor();
    const focused = () => page.evaluate(() => document.activeElement.textContent);
    assert.equal(await focused(), 'Keep as it is');
    await page.keyboard.press('Enter');
    await dialog.waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Cancel' }).click();
    await dialog.getByRole('button', { name: 'Cancel the attempt' }).click();
    await page.getByText('1 message cancelled').waitFor();
    await page.getByText('No attempt is running.').waitFor();
    // Without its session a click leads to the sign-in, and from there back.
    await page.goto(queuePage());
    await page.context().clearCookies();
    await page.getByRole('link', { name: 'Pause' }).click();
    await page.getByLabel('Token').fill('operator');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { level: 1, name: QUEUE }).waitFor();
    assert.equal(page.url(), queuePage());
    // With the token for reading nothing can be done, and the page says why.
    const reader = await signedIn({}, 'reader');
    await reader.goto(queuePage());
    await reader.getByText('only permits reading').first().waitFor();
    assert.equal(await reader.getByRole('link', { name: 'Pause' }).count(), 0);
    const confirm = await reader.goto(`${URL_}/ui/confirm/pause-queue?target=${QUEUE}`);
    assert.equal(confirm.status(), 403);
    await reader.goto(queuePage());
    await reader.getByRole('button', { name: 'Sign out' }).click();
    await reader.getByLabel('Token').waitFor();
    await reader.goto(queuePage());
    await reader.getByLabel('Token').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('This is not the token.').waitFor();
  },

  // More tabs than may follow: the page says so, and follows once one is closed.
  async crowded() {
    const streams = [];
    for (let count = 0; count < 256; count += 1) {
      streams.push(await new Promise((done) => {
        const headers = { authorization: 'Bearer reader' };
        http.get(`${URL_}/ui/live?view=plugins`, { headers, agent: false }, (answer) => {
          answer.on('error', () => {});
          answer.resume();
          assert.equal(answer.statusCode, 200);
          done(answer);
        });
      }));
    }
    const page = await signedIn();
    await page.getByText('Too many streams are open. Close a tab.').waitFor();
    streams[0].destroy();
    await page.waitForFunction(() => document.getElementById('connection').textContent === '');
    await following(page);
    for (const stream of streams) stream.destroy();
  },

  // What no other case does from a page.
  async operations() {
    const page = await signedIn();
    const dialog = page.locator('dialog[open]');
    const confirm = async (link, button, text, fill) => {
      await page.getByRole('link', { name: link }).first().click();
      await dialog.getByText(text).first().waitFor();
      if (fill) await dialog.getByLabel(fill[0]).fill(fill[1]);
      await sent(page, dialog.getByRole('button', { name: button }));
    };
    const says = (text) => page.getByRole('status').getByText(text).waitFor();
    await page.goto(`${URL_}/ui`);
    await confirm('Limits', 'Change', '0 messages held', ['Concurrency', '2']);
    await says('The limits of verdicts apply');
    await confirm('Pause', 'Pause', 'from its 1 queue');
    await says('verdicts is paused');
    send(QUEUE, 'print:once');
    await confirm('Resume', 'Resume', '1 message waits there now.');
    await says('verdicts is resumed');
    await page.goto(`${URL_}/ui/plugins`);
    await confirm('Load new versions', 'Load', '1 route');
    await says('No file has changed');
    send(QUEUE, 'cancelled:x');
    await page.goto(`${URL_}/ui/running`);
    await page.locator('#attempts tbody a').first().click();
    const id = await page.locator('h2 .id').first().textContent();
    await page.goto(queuePage());
    await confirm('Cancel a message', 'Cancel the message', '1 message', ['Message id', id]);
    await says('1 message cancelled: 0 waited, 1 ran.');
    execFileSync(env.DISPATCHER, ['schedule', 'add', QUEUE, '--body', 'print:x', '--cron', '0 3 1 1 *', '--data', env.DATA]);
    await page.goto(`${URL_}/ui/schedules?queue=${encodeURIComponent(QUEUE)}`);
    await confirm('Cancel', 'Cancel it', '1 message');
    await says('1 scheduled message cancelled.');
    // A letter goes back by itself, and fails again.
    send(QUEUE, 'reject:again');
    const letters = async (count) => {
      do await page.goto(`${URL_}/ui/dead-letters?queue=${encodeURIComponent(DEAD)}`);
      while ((await page.locator('#letters tbody tr').count()) !== count);
    };
    await letters(1);
    await page.locator('#letters tbody a').first().click();
    await confirm('Redrive', 'Redrive', '1 message');
    await says('Done: 1 message');
    // A slow job is stopped, and started again.
    send(QUEUE, 'reject:slow', '--count', '20');
    await letters(21);
    await page.getByRole('link', { name: 'Redrive all' }).click();
    await dialog.getByLabel('Rate').fill('0.1');
    await dialog.getByRole('button', { name: 'Redrive' }).click();
    await following(page);
    await confirm('Stop', 'Stop', 'what is moved stays so');
    await page.locator('#job .badge', { hasText: 'cancelled' }).waitFor();
    await confirm('Start again', 'Start', 'It continues with the rest');
    await page.locator('#job .badge', { hasText: 'running' }).waitFor();
    await following(page);
    await confirm('Stop', 'Stop', 'what is moved stays so');
    await page.locator('#job .badge', { hasText: 'cancelled' }).waitFor();
    await page.goto(`${URL_}/ui/processes`);
    await confirm('Stop this process', 'Stop the process', 'As at SIGTERM');
  },

  // Two tenants share a queue; each may run one message at a time.
  async tenants() {
    const page = await signedIn();
    const busy = (tenant, count) => send(QUEUE, 'sleep:600000', '--group', tenant, '--count', count);
    const table = page.getByRole('region', { name: 'Tenants of the queue' });
    const shows = (tenant, wanted) => page.waitForFunction(([tenant, wanted]) => {
      const rows = [...document.querySelectorAll('#tenants tbody tr')];
      const cells = rows.map((row) => [...row.cells].map((cell) => cell.textContent));
      return cells.some(([name, ...more]) => name === tenant && wanted.test(more.join('|')));
    }, [tenant, wanted]);
    await page.goto(queuePage());
    await following(page);
    await page.evaluate(() => { window.same = true; });
    assert.equal(await table.count(), 0, 'a queue without tenants has no table of them');
    busy('acme', '60');
    // Waiting, oldest, held, running, started in 1 s, share, weight, state.
    await shows('acme', /^[1-9]\d\|[^|]+\|3\d\|1\|\d\|\d+ %\|4\|parked$/);
    busy('globex', '3');
    await shows('globex', /^0\|[^|]+\|2\|1\|\d\|\d+ %\|1\|waits for a limit$/);
    assert.ok(await page.evaluate(() => window.same), 'the page was not loaded again');
    const heads = await table.getByRole('columnheader').allTextContents();
    assert.deepEqual(heads,
      ['Tenant', 'Waiting', 'Oldest', 'Held', 'Running', 'Started in 1 s', 'Share', 'Weight', 'State']);
    await page.getByRole('link', { name: 'Change a weight' }).focus();
    await page.keyboard.press('Tab');
    assert.ok(await table.evaluate((region) => region === document.activeElement), 'the keyboard reaches the table');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');
    const dialog = page.locator('dialog[open]');
    await dialog.getByLabel('Tenant').fill('globex');
    await dialog.getByLabel('Weight').fill('9');
    assert.deepEqual(await violations(page), [], 'the dialog');
    await page.keyboard.press('Enter');
    await page.getByRole('status').getByText('The weight applies').waitFor();
    await shows('globex', /\|9\|waits for a limit$/);
    if (env.PICTURES) {
      await page.locator('#tenants').screenshot({ path: `${env.PICTURES}/dashboard-tenants.png` });
    }
    await areAccessible([queuePage().replace(URL_, '')]);
    const phone = await signedIn({ viewport: { width: 360, height: 740 } });
    await phone.goto(queuePage());
    await phone.locator('#tenants tbody tr').first().waitFor();
    const wide = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `the table is ${wide} px too wide for a phone`);
  },

  async dead_letters() {
    const page = await signedIn();
    const dialog = page.locator('dialog[open]');
    const confirm = async (link, text, button) => {
      await link.click();
      await dialog.getByText(text).waitFor();
      await sent(page, dialog.getByRole('button', { name: button }));
    };
    const letters = async (count) => {
      for (;;) {
        await page.goto(`${URL_}/ui/dead-letters?queue=${encodeURIComponent(DEAD)}`);
        if ((await page.locator('#letters tbody tr').count()) === count) return;
      }
    };
    for (const reason of ['card declined', 'card declined', 'no (stock)']) send(QUEUE, `reject:${reason}`);
    await letters(3);
    await page.goto(queuePage());
    await confirm(page.getByRole('link', { name: 'Pause' }), 'Nothing more is received', 'Pause');
    await page.getByText('is paused in all processes').waitFor();
    await page.goto(`${URL_}/ui/dead-letters`);
    await page.getByRole('link', { name: DEAD }).click();
    const reasons = page.locator('section:has(#reasons-title) tbody tr');
    assert.match(await reasons.first().textContent(), /^2card declined/);
    await confirm(reasons.first().getByRole('link', { name: 'Redrive these' }), '2 messages', 'Redrive');
    await page.getByText('Done: 2 messages, 0 stay.').waitFor();
    await letters(1);
    await page.locator('#letters tbody a').click();
    await page.locator('pre').getByText('reject:no (stock)').waitFor();
    await page.getByRole('link', { name: 'Edit and redrive' }).click();
    assert.equal(await dialog.getByLabel('Body').inputValue(), 'reject:no (stock)');
    await dialog.getByLabel('Body').fill('print:corrected\nbody');
    await dialog.getByRole('button', { name: 'Redrive' }).click();
    await page.getByText('Done: 1 message, 0 stay.').waitFor();
    await page.goto(queuePage());
    await page.getByText('3 messages wait.').waitFor();
    await confirm(page.getByRole('link', { name: 'Resume' }), '3 messages wait in it now', 'Resume');
    await page.getByText(`${QUEUE} is resumed`).waitFor();
    await letters(2);
    await page.locator('#letters tbody a').first().click();
    await confirm(page.getByRole('link', { name: 'Delete' }), '1 message', 'Delete');
    await page.getByText('1 message deleted.').waitFor();
    await confirm(page.getByRole('link', { name: 'Purge' }), '1 message is removed. This cannot be undone.', 'Purge');
    await page.getByText('Done: 1 message').waitFor();
    await letters(0);
    await page.getByText('No message waits here.').waitFor();
    assert.equal(await page.locator('#jobs tbody tr').count(), 3);
  },

  async without_javascript() {
    const page = await signedIn({ javaScriptEnabled: false });
    await page.locator('noscript .hint').waitFor();
    assert.equal(await page.locator('.chart svg').count(), 3);
    assert.equal(await page.locator('table').first().locator('tbody tr').count(), 1);
    await page.getByLabel('Filter queues').fill('nothing-like-it');
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByText('has “nothing-like-it” in its name').waitFor();
    await page.getByRole('link', { name: '24h' }).click();
    await page.waitForURL(/span=24h/);
    await page.getByText('has “nothing-like-it” in its name').waitFor();
    await page.goto(queuePage());
    await page.getByRole('link', { name: 'Pause' }).click();
    await page.getByText('0 messages in attempts here').waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText(`${QUEUE} is paused`).waitFor();
    assert.ok(page.url().includes('/ui/queue?name='), page.url());
    await page.reload();
    assert.equal(await page.getByText(`${QUEUE} is paused in all`).count(), 0, 'a notice is shown once');
    await page.getByText('No process receives from').waitFor();
    for (const address of PAGES) {
      const answer = await page.goto(URL_ + address);
      assert.equal(answer.status(), 200, address);
    }
  },

  async text_is_text() {
    const script = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 1">';
    const page = await signedIn();
    const shows = async (address) => {
      await page.goto(URL_ + address);
      await page.getByText('<script>').first().waitFor();
      await page.waitForTimeout(50);
      assert.equal(await page.evaluate(() => window.hacked), undefined, address);
    };
    await page.locator('strong.badge', { hasText: '<img src=x onerror' }).waitFor();
    send(QUEUE, `reject:${script}`);
    send(QUEUE, `cancelled:${script}`, '--attribute', `name=${script}`, '--group', '<script>group');
    await page.goto(`${URL_}/ui`);
    await following(page);
    await page.getByText(script).first().waitFor();
    await shows('/ui');
    await shows(`/ui?q=${encodeURIComponent(script)}`);
    await shows(queuePage().replace(URL_, ''));
    await page.goto(`${URL_}/ui/running`);
    await page.locator('#attempts tbody a').first().click();
    await page.locator('pre').getByText(script).waitFor();
    await page.locator('dd').getByText(script).waitFor();
    await page.locator('dd').getByText('<script>group').waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await page.getByRole('link', { name: 'Cancel' }).click();
    await page.locator('dialog[open]').getByRole('button', { name: 'Cancel the attempt' }).click();
    await page.getByText('1 message cancelled').waitFor();
    const name = encodeURIComponent(script);
    for (const address of [`/ui/queue?name=${name}`, `/ui/attempt?id=${name}`, `/ui/schedules?queue=${name}`,
      `/ui/confirm/pause-queue?target=${name}`, `/ui/confirm/${name}`]) {
      await shows(address);
    }
    await page.context().addCookies([{ name: 'dispatcher-notice', value: encodeURIComponent(script), url: `${URL_}/ui`, sameSite: 'Strict' }]);
    await shows('/ui');
    await shows(`/ui/dead-letters?queue=${encodeURIComponent(DEAD)}`);
    await page.locator('#letters tbody a').first().click();
    await page.locator('pre').getByText('<script>').waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  },

  async behind_a_proxy() {
    for (const keeps of [true, false]) {
      const target = new URL(URL_);
      const proxy = http.createServer((request, answer) => {
        if (!request.url.startsWith('/ops/')) return answer.writeHead(404).end('not behind the prefix');
        const path = keeps ? request.url : request.url.slice('/ops'.length);
        const forward = { host: target.hostname, port: target.port, path, method: request.method, headers: request.headers };
        const further = http.request(forward, (got) => {
          answer.writeHead(got.statusCode, got.headers);
          pipeline(got, answer, () => {});
        });
        further.on('error', () => answer.destroy());
        answer.on('close', () => further.destroy());
        request.pipe(further);
      });
      await new Promise((ready) => proxy.listen(0, '127.0.0.1', ready));
      const base = `http://127.0.0.1:${proxy.address().port}/ops`;
      const page = await tab();
      const failed = [];
      page.on('response', (answer) => {
        if (answer.status() >= 400 || !answer.url().startsWith(`${base}/ui`)) failed.push(`${answer.status()} ${answer.url()}`);
      });
      await signIn(page, 'operator', base);
      await following(page);
      for (const name of ['Running', 'Schedules', 'Plugins', 'Processes', 'Doctor', 'Overview']) {
        await page.getByRole('navigation').getByRole('link', { name }).click();
        await page.getByRole('heading', { level: 1, name }).waitFor({ state: 'attached' });
      }
      await page.getByRole('link', { name: QUEUE }).first().click();
      await following(page);
      for (const verb of ['Pause', 'Resume']) await switched(page, verb, QUEUE);
      assert.deepEqual(failed, []);
      await page.context().close();
      proxy.closeAllConnections();
      proxy.close();
    }
  },

  async forged() {
    const page = await signedIn();
    // A page of another site, by a name that the browser resolves to loopback.
    const evil = http.createServer((request, answer) => {
      answer.writeHead(200, { 'content-type': 'text/html' });
      answer.end(`<form method="post" action="${URL_}/ui/act/pause-queue">
        <input name="target" value="${QUEUE}"><button>Win</button></form><a href="${URL_}/ui">Look</a>`);
    });
    await new Promise((ready) => evil.listen(0, '127.0.0.1', ready));
    const place = `http://evil.localhost:${evil.address().port}/`;
    await page.goto(place);
    const [answer] = await Promise.all([page.waitForResponse(/act/), page.getByRole('button').click()]);
    assert.equal(answer.status(), 403);
    await page.getByText('Cross-site actions are refused').waitFor();
    // A link from another site reaches the page without a second sign-in.
    await page.goto(place);
    await page.getByRole('link', { name: 'Look' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor({ state: 'attached' });
    await page.goto(queuePage());
    assert.equal(await page.getByRole('link', { name: 'Pause' }).count(), 1, 'it was not paused');
    const cookie = (await page.context().cookies()).find((one) => one.name.startsWith('dispatcher-session'));
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && cookie.path === '/ui', JSON.stringify(cookie));
    const ask = (method, path, headers) => new Promise((done) => {
      const request = http.request(URL_ + path, { method, headers: { cookie: `${cookie.name}=${cookie.value}`, ...headers } },
        (got) => { got.resume(); done(got.statusCode); });
      request.end(method === 'POST' ? `target=${QUEUE}` : undefined);
    });
    const host = new URL(URL_).host;
    for (const [wanted, method, headers] of [
      [200, 'GET', {}],
      [421, 'GET', { host: 'evil.example.com' }],
      [421, 'POST', { host: 'evil.example.com', origin: 'http://evil.example.com' }],
      [403, 'POST', { origin: 'http://evil.example.com' }],
      [403, 'POST', { origin: 'null' }],
      [403, 'POST', { origin: `http://${host}`, 'sec-fetch-site': 'cross-site' }],
      // A session alone does not show that a page from here asks.
      [403, 'POST', {}],
    ]) {
      const path = method === 'GET' ? '/ui' : '/ui/act/pause-queue';
      assert.equal(await ask(method, path, headers), wanted, JSON.stringify([method, headers]));
    }
    for (const [wanted, origin] of [[303, `http://${host}`], [403, 'http://evil.example.com']]) {
      assert.equal(await ask('POST', '/ui/sign-out', { cookie: '', origin }), wanted, `a session that has ended, ${origin}`);
    }
    const changed = await ask('GET', '/ui', { cookie: `${cookie.name}=${cookie.value.replace('o.', 'r.')}` });
    assert.equal(changed, 303, 'a changed session leads to the sign-in');
    evil.closeAllConnections();
    evil.close();
  },

  async pictures() {
    const page = await signedIn({ colorScheme: 'light', viewport: { width: 1200, height: 760 } });
    // What a small shop would send.
    const work = (second) => {
      const wave = 1 + Math.sin(second / 9) / 2;
      send('local:orders', 'sleep:45', '--count', `${Math.round(70 * wave)}`);
      send('local:emails', 'sleep:20', '--count', `${Math.round(30 * wave)}`);
      if (second % 3 === 0) send('local:invoices', 'sleep:180', '--count', '12');
      if (second % 5 === 0) send('local:orders', 'reject:card declined');
      if (second % 7 === 0) send('local:webhooks', 'reject:404 from https://shop.example.com/hook', '--count', '2');
      if (second === 4) send('local:orders', 'reject:no price for SKU 4711', '--count', '3');
      if (second % 10 === 0) send('local:webhooks', 'retry:2');
    };
    await page.goto(`${URL_}/ui`);
    await following(page);
    for (let second = 0; second < 40; second += 1) {
      const next = Date.now() + 1_000;
      work(second);
      await page.waitForTimeout(Math.max(0, next - Date.now()));
    }
    send('local:invoices', 'sleep:180', '--count', '400');
    const picture = async (name, address) => {
      await page.goto(URL_ + address);
      await following(page);
      await page.waitForTimeout(6_000);
      await page.screenshot({ path: `${env.PICTURES}/${name}.png` });
    };
    await picture('dashboard', '/ui');
    await picture('dashboard-dead-letters', '/ui/dead-letters?queue=local%3Aorders.dead');
  },
};

// What has no time limit is the end of a browser, among others: a case that hangs fails.
setTimeout(() => {
  const pages = browser ? browser.contexts().flatMap((context) => context.pages()) : [];
  console.error('no end within 10 minutes; open pages:', pages.map((page) => page.url()), errors);
  process.exit(1);
}, 600_000).unref();

(async () => {
  const launch = {
    executablePath: env.CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu'],
    env: { ...env, LD_LIBRARY_PATH: env.BROWSER_LIBRARIES },
  };
  browser = await chromium.launch(launch);
  try {
    await CASES[process.argv[2]]();
    assert.deepEqual(errors, []);
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(error, errors);
  process.exit(1);
});
