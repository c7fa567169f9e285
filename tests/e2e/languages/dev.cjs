// A developer's look at a failed message: signed in by the address that `dispatcher dev` prints, to its
// body, and the redrive. `dev.rs` runs it.
const { chromium } = require('playwright-core');
const assert = require('node:assert/strict');
const { env } = process;

(async () => {
  const browser = await chromium.launch({
    executablePath: env.CHROMIUM,
    args: ['--no-sandbox'],
    env: { ...env, LD_LIBRARY_PATH: env.BROWSER_LIBRARIES },
  });
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  await page.goto(env.SIGN_IN);
  await page.getByRole('heading', { name: 'Overview' }).waitFor({ state: 'attached' });
  assert(!page.url().includes('#'), page.url());
  const base = new URL(env.SIGN_IN).origin;
  const letters = `${base}/ui/dead-letters?queue=${encodeURIComponent(env.DEAD)}`;
  await page.goto(letters);
  await page.locator('#letters tbody a').first().click();
  await page.getByText(env.BODY).first().waitFor();
  await page.goto(letters);
  await page.getByRole('link', { name: 'Redrive all' }).click();
  await page.locator('dialog[open]').getByRole('button', { name: 'Redrive' }).click();
  await page.getByText('Done: 1 message').waitFor();
  await browser.close();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
